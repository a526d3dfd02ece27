#include "apps/common/profile.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>

#include <boost/json.hpp>

#include "apps/common/metrics.h"
#include "apps/common/output_file.h"
#include "apps/common/progress.h"

namespace smelt {
namespace {

namespace json = boost::json;

enum Row { kSpans = 0, kScopes = 1, kOperations = 2 };

double seconds_of(const ProfileEvent& e) { return 1e-9 * double(e.end - e.begin - e.inside); }

bool same_scope(const ProfileEvent& a, const ProfileEvent& b) {
  return a.backward == b.backward && std::strcmp(a.scope, b.scope) == 0;
}

const char* direction(const ProfileEvent& e) { return e.backward ? "backward" : "forward"; }

/// One event per line; the format wants microseconds.
class TraceFile {
 public:
  explicit TraceFile(const std::filesystem::path& path) : file_(path) {
    file_.write("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
    const char* names[] = {"steps", "layers and visits", "operations"};
    for (int row = 0; row < 3; ++row) {
      write({{"name", "thread_name"},
             {"ph", "M"},
             {"pid", 0},
             {"tid", row},
             {"args", {{"name", names[row]}}}});
    }
  }
  void slice(const std::string& name, Row row, int64_t begin, int64_t end, json::object args) {
    write({{"name", name},
           {"ph", "X"},
           {"pid", 0},
           {"tid", int(row)},
           {"ts", 1e-3 * double(begin)},
           {"dur", 1e-3 * double(end - begin)},
           {"args", std::move(args)}});
  }
  void finish() {
    file_.write("\n]}\n");
    file_.publish();
  }

 private:
  void write(const json::object& event) {
    file_.write((first_ ? "\n" : ",\n") + json_line(event));
    first_ = false;
  }
  OutputFile file_;
  bool first_ = true;
};

std::string milliseconds(double seconds) { return formatted("%.1fms", 1e3 * seconds); }

std::string rate(double amount, double seconds, const char* unit) {
  return amount > 0 && seconds > 0 ? human_count(amount / seconds) + unit : "";
}

}  // namespace

void write_chrome_trace(const std::filesystem::path& path, const std::vector<ProfileEvent>& events,
                        const std::vector<ProfileSpan>& spans) {
  std::vector<ProfileEvent> ordered = events;  // outer operations end after those inside
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const ProfileEvent& a, const ProfileEvent& b) { return a.begin < b.begin; });
  TraceFile trace(path);
  for (const ProfileSpan& span : spans) trace.slice(span.name, kSpans, span.begin, span.end, {});
  for (size_t first = 0; first < ordered.size();) {
    const ProfileEvent& head = ordered[first];
    size_t next = first;
    int64_t end = head.end;
    for (; next < ordered.size() && same_scope(ordered[next], head); ++next)
      end = std::max(end, ordered[next].end);
    if (*head.scope != '\0') {
      trace.slice(std::string(head.scope) + " " + direction(head), kScopes, head.begin, end, {});
    }
    first = next;
  }
  for (const ProfileEvent& e : ordered) {
    json::object args{{"scope", e.scope}, {"direction", direction(e)}};
    if (e.flops > 0) args["flops"] = e.flops;
    if (e.bytes > 0) args["bytes"] = e.bytes;
    trace.slice(e.name, kOperations, e.begin, e.end, std::move(args));
  }
  trace.finish();
}

std::vector<OperationTotal> operation_totals(const std::vector<ProfileEvent>& events,
                                             double elapsed) {
  std::map<std::string, OperationTotal> by_name;
  double inside = 0;
  for (const ProfileEvent& e : events) {
    OperationTotal& total = by_name[e.name];
    total.name = e.name;
    ++total.calls;
    total.seconds += seconds_of(e);
    total.flops += e.flops;
    total.bytes += e.bytes;
    inside += seconds_of(e);
  }
  std::vector<OperationTotal> totals;
  for (auto& [name, total] : by_name) totals.push_back(std::move(total));
  if (elapsed > inside) {
    OperationTotal between;
    between.name = "(between operations)";
    between.seconds = elapsed - inside;
    totals.push_back(between);
  }
  std::stable_sort(
      totals.begin(), totals.end(),
      [](const OperationTotal& a, const OperationTotal& b) { return a.seconds > b.seconds; });
  return totals;
}

std::string profile_table(const std::vector<ProfileEvent>& events, double elapsed) {
  std::string text;
  char line[160];
  const auto add = [&](auto... values) {
    std::snprintf(line, sizeof line, values...);
    text += line;
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  };
  add("%-24s %8s %11s %7s %9s %13s %9s %10s", "operation", "calls", "time", "share", "FLOPs",
      "rate", "bytes", "rate");
  for (const OperationTotal& t : operation_totals(events, elapsed)) {
    add("%-24.24s %8s %11s %6.1f%% %9s %13s %9s %10s", t.name.c_str(),
        t.calls > 0 ? std::to_string(t.calls).c_str() : "", milliseconds(t.seconds).c_str(),
        100 * t.seconds / elapsed, t.flops > 0 ? human_count(t.flops).c_str() : "",
        rate(t.flops, t.seconds, "FLOP/s").c_str(), t.bytes > 0 ? human_count(t.bytes).c_str() : "",
        rate(t.bytes, t.seconds, "B/s").c_str());
  }
  double forward = 0, backward = 0, optimizer = 0;
  for (const ProfileEvent& e : events) {
    double& part = std::strcmp(e.scope, "optimizer") == 0 ? optimizer
                   : e.backward                           ? backward
                                                          : forward;
    part += seconds_of(e);
  }
  add("forward %.1f%%, backward %.1f%%, optimizer %.1f%% of %s", 100 * forward / elapsed,
      100 * backward / elapsed, 100 * optimizer / elapsed, milliseconds(elapsed).c_str());
  return text;
}

}  // namespace smelt
