#include <filesystem>

#include <boost/iostreams/device/mapped_file.hpp>

#include "apps/common/token_file.h"
#include "apps/prepare/clean.h"
#include "apps/prepare/document_source.h"
#include "tensor/error.h"

namespace smelt {
namespace {

namespace io = boost::iostreams;

constexpr int64_t kBatchTokens = int64_t{1} << 18;

/// The bare ids of one file of llm.c or nanoGPT, mapped.
class IdFile {
 public:
  IdFile(const InputFile& input, TokenFormat format) : path_(input.path) {
    int64_t first = 0, count = 0;
    SMELT_CHECK(IoError, input.bytes >= 0, path_ << ": token files must be ordinary files");
    if (input.bytes == 0) throw IoError(path_ + ": the file is empty");
    try {
      file_.open(path_);
    } catch (const std::exception& e) {
      throw IoError(path_ + ": cannot map: " + e.what());
    }
    const auto size = static_cast<int64_t>(file_.size());
    if (format == TokenFormat::llmc) {
      constexpr int64_t kHeader = 1024;
      SMELT_CHECK(IoError, size >= kHeader,
                  path_ << ": " << size << " bytes, shorter than the header of " << kHeader);
      const auto magic = load_unaligned<int32_t>(file_.data()),
                 version = load_unaligned<int32_t>(file_.data() + 4);
      const bool narrow = magic == 20240520 && version == 1;
      SMELT_CHECK(IoError, narrow || (magic == 20240801 && version == 7),
                  path_ << ": magic " << magic << ", version " << version
                        << " is no token file of llm.c; allowed are 20240520, 1 (u16) and "
                           "20240801, 7 (u32)");
      width_ = narrow ? 2 : 4;
      first = kHeader;
      count = load_unaligned<int32_t>(file_.data() + 8);
      SMELT_CHECK(IoError, count > 0 && size == kHeader + count * width_,
                  path_ << ": " << size << " bytes, but its header says " << count << " tokens of "
                        << width_ << " bytes behind " << kHeader << " bytes");
    } else {
      width_ = format == TokenFormat::nanogpt ? 2 : 4;
      SMELT_CHECK(
          IoError, size % width_ == 0,
          path_ << ": " << size << " bytes are no whole number of ids of " << width_ << " bytes");
      count = size / width_;
    }
    data_ = file_.data() + first;
    count_ = count;
  }

  const std::string& path() const { return path_; }
  int64_t count() const { return count_; }
  int64_t id(int64_t i) const {
    const char* const at = data_ + byte_offset(i, width_);
    return width_ == 2 ? int64_t{load_unaligned<uint16_t>(at)}
                       : int64_t{load_unaligned<uint32_t>(at)};
  }

 private:
  std::string path_;
  io::mapped_file_source file_;
  const char* data_ = nullptr;
  int64_t width_ = 2, count_ = 0;
};

class TokenDocuments : public DocumentSource {
 public:
  TokenDocuments(std::vector<InputFile> inputs, const TokenIds& vocabulary,
                 const Tokenizer* tokenizer, SourcePosition from)
      : inputs_(std::move(inputs)),
        vocabulary_(vocabulary),
        tokenizer_(tokenizer),
        position_(from) {
    for (int64_t i = 0; i < from.input; ++i) consumed_ += inputs_.at(size_t(i)).bytes;
  }

  std::optional<BatchJob> next() override {
    std::vector<EncodedDocument> documents;
    int64_t tokens = 0;
    EncodedDocument document;
    while (tokens < kBatchTokens && next_document(document.ids)) {
      tokens += static_cast<int64_t>(document.ids.size());
      documents.push_back(std::move(document));
      document = {};
    }
    if (documents.empty()) return std::nullopt;
    auto batch = std::make_shared<DocumentBatch>();
    batch->documents = std::move(documents);
    batch->position = position_;
    batch->consumed = consumed_;
    return [this, batch] { return finish(std::move(*batch)); };
  }

 protected:
  /// Fills in the next document without its end mark and moves position_ and consumed_ behind it.
  virtual bool next_document(std::vector<int32_t>& ids) = 0;
  /// Goes on to the next input.
  void advance() {
    consumed_ += inputs_[size_t(position_.input)].bytes;
    position_ = {position_.input + 1, 0};
  }
  int32_t checked(int64_t id, const std::string& path, int64_t at) const {
    SMELT_CHECK(IoError, id >= 0 && id < vocabulary_.size,
                path << ": token " << at << " is " << id << ", outside the vocabulary of "
                     << vocabulary_.size);
    return static_cast<int32_t>(id);
  }

  std::vector<InputFile> inputs_;
  TokenIds vocabulary_;
  const Tokenizer* tokenizer_;
  SourcePosition position_;
  int64_t consumed_ = 0;

 private:
  DocumentBatch finish(DocumentBatch batch) const {
    for (EncodedDocument& document : batch.documents) {
      const std::string_view bytes(reinterpret_cast<const char*>(document.ids.data()),
                                   document.ids.size() * sizeof(int32_t));
      document.hash = content_hash(bytes);
      if (tokenizer_ != nullptr)
        for (const int32_t id : document.ids) document.bytes += tokenizer_->id_bytes(id);
      document.ids.push_back(vocabulary_.eod_id);
    }
    return batch;
  }
};

/// What stands between end marks; a document may go on in the next file.
class BareDocuments final : public TokenDocuments {
 public:
  BareDocuments(std::vector<InputFile> inputs, TokenFormat format, const TokenIds& vocabulary,
                const Tokenizer* tokenizer, SourcePosition from)
      : TokenDocuments(std::move(inputs), vocabulary, tokenizer, from), format_(format) {}

 private:
  // position_.record is the number of ids of the present file that are through.
  bool next_document(std::vector<int32_t>& ids) override {
    while (position_.input < int64_t(inputs_.size())) {
      if (!file_) file_ = std::make_unique<IdFile>(inputs_[size_t(position_.input)], format_);
      while (position_.record < file_->count()) {
        const int64_t at = position_.record++;
        const int32_t id = checked(file_->id(at), file_->path(), at);
        if (id != vocabulary_.eod_id) {
          ids.push_back(id);
        } else if (!ids.empty()) {
          return true;
        }
      }
      advance();
      file_.reset();
    }
    return !ids.empty();
  }

  TokenFormat format_;
  std::unique_ptr<IdFile> file_;
};

class MegatronDocuments final : public TokenDocuments {
 public:
  using TokenDocuments::TokenDocuments;

 private:
  bool next_document(std::vector<int32_t>& ids) override {
    while (position_.input < int64_t(inputs_.size())) {
      const InputFile& input = inputs_[size_t(position_.input)];
      if (!file_) {
        const std::filesystem::path path(input.path);
        file_ = std::make_unique<TokenFile>((path.parent_path() / path.stem()).string());
      }
      while (position_.record < file_->documents()) {
        const int64_t d = position_.record++;
        ids.resize(size_t(file_->document_length(d)));
        file_->read(file_->document_begin(d), ids);
        for (size_t i = 0; i < ids.size(); ++i)
          checked(ids[i], input.path, file_->document_begin(d) + int64_t(i));
        if (!ids.empty() && ids.back() == vocabulary_.eod_id) ids.pop_back();
        if (!ids.empty()) return true;
      }
      advance();
      file_.reset();
    }
    return false;
  }

  std::unique_ptr<TokenFile> file_;
};

}  // namespace

std::unique_ptr<DocumentSource> token_documents(std::vector<InputFile> inputs, TokenFormat format,
                                                const TokenIds& vocabulary,
                                                const Tokenizer* tokenizer, SourcePosition from) {
  // A folder of Megatron files holds two of each: the index stands for both.
  if (format == TokenFormat::megatron) {
    std::erase_if(inputs, [](const InputFile& input) { return input.path.ends_with(".bin"); });
    for (const InputFile& input : inputs)
      SMELT_CHECK(ConfigError, input.path.ends_with(".idx"),
                  "--input: " << input.path << ": name PREFIX.idx, or a folder of them");
    SMELT_CHECK(ConfigError, !inputs.empty(), "--input: name PREFIX.idx, or a folder of them");
    return std::make_unique<MegatronDocuments>(std::move(inputs), vocabulary, tokenizer, from);
  }
  return std::make_unique<BareDocuments>(std::move(inputs), format, vocabulary, tokenizer, from);
}

}  // namespace smelt
