#include "apps/prepare/prepare_job.h"

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <unordered_set>

#include <boost/json.hpp>
#include <boost/uuid/uuid_hash.hpp>

#include "apps/common/output_file.h"
#include "apps/common/progress.h"
#include "apps/common/run_folder.h"
#include "apps/common/signals.h"
#include "apps/prepare/ordered_work.h"
#include "tensor/error.h"

namespace smelt {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;
using boost::uuids::uuid;

constexpr const char* kFormat = "smelt prepare progress";
constexpr size_t kBadShown = 10;  // reasons that are printed; the rest are only counted

/// Hashes of the documents that were kept, with a copy on disk from which a run goes on.
class SeenDocuments {
 public:
  SeenDocuments(fs::path path, int64_t resume_count) : path_(std::move(path)) {
    if (resume_count > 0) {
      std::ifstream in(path_, std::ios::binary);
      uuid hash;
      while (int64_t(seen_.size()) < resume_count && in.read(reinterpret_cast<char*>(&hash), 16))
        seen_.insert(hash);
      SMELT_CHECK(IoError, int64_t(seen_.size()) == resume_count,
                  path_.string() << ": holds " << seen_.size() << " hashes, " << resume_count
                                 << " had been written; start again with --restart");
      in.close();
      fs::resize_file(path_, static_cast<uintmax_t>(resume_count) * 16);
    }
    out_.open(path_, std::ios::binary | (resume_count > 0 ? std::ios::app : std::ios::trunc));
  }
  /// Whether the document is the first of its text.
  bool insert(const uuid& hash) {
    if (!seen_.insert(hash).second) return false;
    out_.write(reinterpret_cast<const char*>(&hash), 16);
    return true;
  }
  int64_t sync() {
    out_.flush();
    SMELT_CHECK(IoError, out_, path_.string() << ": cannot write: " << std::strerror(errno));
    sync_path(path_);
    return int64_t(seen_.size());
  }

 private:
  fs::path path_;
  std::unordered_set<uuid> seen_;
  std::ofstream out_;
};

/// What was left out, and how far the inputs are through.
struct Counters {
  SourcePosition position;
  int64_t empty = 0, bad = 0, repeated = 0, hashes = 0;

  json::object to_json() const {
    return {{"input", position.input}, {"record", position.record}, {"empty", empty}, {"bad", bad},
            {"repeated", repeated},    {"hashes", hashes}};
  }
  static Counters from_json(const json::value& v) {
    const auto number = [&](const char* key) { return v.at(key).as_int64(); };
    return {{number("input"), number("record")},
            number("empty"),
            number("bad"),
            number("repeated"),
            number("hashes")};
  }
};

class Preparation {
 public:
  Preparation(const PrepareJob& job, Progress& progress)
      : job_(job),
        progress_(progress),
        state_path_(fs::path(job.out) / ("." + job.domain + ".progress.json")),
        hashes_path_(fs::path(job.out) / ("." + job.domain + ".hashes")) {
    json::object writer_state;
    if (job.restart) fs::remove(state_path_);
    try {
      if (fs::exists(state_path_)) {
        const json::value state = read_state();
        counters_ = Counters::from_json(state.at("counters"));
        writer_state = state.at("splits").as_object();
      }
      writer_ = std::make_unique<DomainWriter>(job.out, job.domain, job.vocabulary, writer_state);
    } catch (const std::logic_error&) {  // a key is missing or of another type: by Boost's version
      throw damaged();
    } catch (const boost::system::system_error&) {
      throw damaged();
    }
    if (!writer_state.empty())
      progress_.note("going on with " + job.domain + " behind document " +
                     std::to_string(writer_->totals().documents));
    if (job.unique) seen_ = std::make_unique<SeenDocuments>(hashes_path_, counters_.hashes);
  }

  const SourcePosition& position() const { return counters_.position; }

  json::object run(const MakeSource& make_source) {
    const std::unique_ptr<DocumentSource> source = make_source(position());
    OrderedWork<BatchJob, DocumentBatch> work([&] { return source->next(); },
                                              [](BatchJob job) { return job(); }, job_.threads,
                                              size_t(4 * job_.threads));
    while (std::optional<DocumentBatch> batch = work.take()) {
      take(*batch);
      report(batch->consumed);
      if (stop_requested()) {
        save();
        throw RunError(std::string("stopped by ") + stop_signal_name() + " behind document " +
                       std::to_string(writer_->totals().documents) +
                       "; the same command goes on from there");
      }
      if (seconds_since(saved_) >= job_.save_every) save();
    }
    progress_.finish();
    fs::remove(state_path_);  // first: from here on there is nothing to go on with
    writer_->finish();
    json::object entry = describe(*writer_);
    entry["skipped"] = {{"empty", counters_.empty},
                        {"unreadable", counters_.bad},
                        {"repeated", counters_.repeated}};
    seen_.reset();
    fs::remove(hashes_path_);
    return entry;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  IoError damaged() const {
    return IoError(state_path_.string() + ": damaged; start again with --restart");
  }

  json::value read_state() const {
    json::error_code error;
    json::value state = json::parse(read_text_file(state_path_.string()), error);
    const bool known = !error && state.is_object() &&
                       state.as_object().if_contains("format") != nullptr &&
                       state.at("format") == kFormat && state.at("version") == 1;
    if (!known) throw damaged();
    // Through text: numbers that are equal may be held in different types.
    const auto text = [](const json::value& v) { return json::serialize(v); };
    for (const auto& [key, value] : job_.settings) {
      const json::value* const before = state.at("settings").as_object().if_contains(key);
      SMELT_CHECK(ConfigError, before != nullptr && text(*before) == text(value),
                  "domain " << job_.domain << " was begun with other settings (" << key
                            << " differs); give those, or start again with --restart");
    }
    return state;
  }

  void take(const DocumentBatch& batch) {
    for (const std::string& reason : batch.bad) {
      ++counters_.bad;
      SMELT_CHECK(
          IoError, counters_.bad <= job_.max_bad,
          reason << (job_.max_bad > 0 ? " (and " + std::to_string(counters_.bad - 1) +
                                            " unreadable records before it; --max-bad allows " +
                                            std::to_string(job_.max_bad) + ")"
                                      : ""));
      if (size_t(counters_.bad) <= kBadShown) progress_.note("skipped: " + reason);
    }
    for (const EncodedDocument& document : batch.documents) {
      if (seen_ && !seen_->insert(document.hash)) {
        ++counters_.repeated;
        continue;
      }
      writer_->add(job_.split.value_or(split_by_hash(document.hash, job_.holdout)), document.ids,
                   document.bytes);
    }
    counters_.empty += batch.empty;
    counters_.position = batch.position;
  }

  void save() {
    const json::object splits = writer_->sync();
    if (seen_) counters_.hashes = seen_->sync();
    write_file(state_path_, json::serialize(json::object{{"format", kFormat},
                                                         {"version", 1},
                                                         {"settings", job_.settings},
                                                         {"counters", counters_.to_json()},
                                                         {"splits", splits}}) +
                                "\n");
    saved_ = Clock::now();
  }

  void report(int64_t consumed) {
    if (first_consumed_ < 0) first_consumed_ = consumed;
    const bool logged = seconds_since(logged_) >= 10;
    if (!logged && seconds_since(shown_) < 0.2) return;
    const double seconds = seconds_since(start_);
    const SplitTotals totals = writer_->totals();
    std::string line = job_.domain;
    if (job_.input_bytes > 0) line += " " + std::to_string(100 * consumed / job_.input_bytes) + "%";
    line += " | " + human_count(double(totals.documents)) + " documents | " +
            human_bytes(double(totals.bytes)) + " | " + human_count(double(totals.tokens)) +
            " tokens";
    // A run that goes on reads through what it has: its speed counts from there.
    const double rate = double(consumed - first_consumed_) / seconds;
    if (rate > 0) {
      line += " | " + human_bytes(rate) + "/s";
      if (job_.input_bytes > 0)
        line += " | ETA " + human_duration(double(job_.input_bytes - consumed) / rate);
    }
    progress_.update(line, logged);
    shown_ = Clock::now();
    if (logged) logged_ = shown_;
  }

  const PrepareJob& job_;
  Progress& progress_;
  fs::path state_path_, hashes_path_;
  Counters counters_;
  std::unique_ptr<DomainWriter> writer_;
  std::unique_ptr<SeenDocuments> seen_;
  Clock::time_point start_ = Clock::now(), saved_ = start_, logged_ = start_, shown_ = start_;
  int64_t first_consumed_ = -1;
};

}  // namespace

double hash_place(const uuid& hash) {
  // The first 48 bits: further on, a UUID keeps bits for its version.
  uint64_t bits = 0;
  for (size_t i = 0; i < 6; ++i) bits = bits << 8 | hash.data[i];
  return double(bits) / double(uint64_t{1} << 48);
}

Split split_by_hash(const uuid& hash, double holdout) {
  const double place = hash_place(hash);
  return place < holdout ? Split::valid : place < 2 * holdout ? Split::test : Split::train;
}

json::object run_prepare(const PrepareJob& job, const MakeSource& make_source) {
  Progress progress;
  Preparation preparation(job, progress);
  return preparation.run(make_source);
}

}  // namespace smelt
