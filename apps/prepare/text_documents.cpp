#include "apps/prepare/clean.h"
#include "apps/prepare/document_source.h"
#include "tensor/error.h"

namespace smelt {
namespace {

constexpr size_t kBatchBytes = size_t{1} << 20;
constexpr size_t kBatchRecords = 4096;

struct RecordBatch {
  std::vector<TextRecord> records;
  std::string path;
  SourcePosition position;
  int64_t consumed = 0;
};

DocumentBatch encode(RecordBatch batch, const TextOptions& options, const Tokenizer& tokenizer) {
  DocumentBatch result;
  result.position = batch.position;
  result.consumed = batch.consumed;
  for (TextRecord& record : batch.records) {
    try {
      const auto text = parse_record(std::move(record), batch.path, options);
      if (text) {
        result.documents.push_back({encode_document(tokenizer, *text),
                                    static_cast<int64_t>(text->size()), content_hash(*text)});
      } else {
        ++result.empty;
      }
    } catch (const IoError& error) {
      result.bad.push_back(error.what());
    }
  }
  return result;
}

class TextDocuments final : public DocumentSource {
 public:
  TextDocuments(std::vector<InputFile> inputs, TextOptions options, const Tokenizer& tokenizer,
                SourcePosition from)
      : inputs_(std::move(inputs)),
        options_(std::move(options)),
        tokenizer_(tokenizer),
        position_(from),
        skip_(from.record) {
    for (int64_t i = 0; i < from.input; ++i)
      before_ += std::max<int64_t>(inputs_.at(size_t(i)).bytes, 0);
  }

  std::optional<BatchJob> next() override {
    auto batch = std::make_shared<RecordBatch>();
    size_t bytes = 0;
    while (batch->records.empty()) {
      if (!reader_ && !open()) return std::nullopt;
      TextRecord record;
      bool more = true;
      while (bytes < kBatchBytes && batch->records.size() < kBatchRecords &&
             (more = reader_->next(record))) {
        position_.record = record.number;
        if (record.number <= skip_) continue;
        bytes += record.bytes.size();
        batch->records.push_back(std::move(record));
      }
      batch->path = inputs_[size_t(position_.input)].path;
      batch->consumed = before_ + reader_->consumed();
      if (!more) close();
      batch->position = position_;
    }
    return [this, batch] { return encode(std::move(*batch), options_, tokenizer_); };
  }

 private:
  bool open() {
    if (position_.input >= int64_t(inputs_.size())) return false;
    reader_ = std::make_unique<RecordReader>(inputs_[size_t(position_.input)].path, options_);
    return true;
  }
  void close() {
    before_ += std::max<int64_t>(inputs_[size_t(position_.input)].bytes, 0);
    position_ = {position_.input + 1, 0};
    skip_ = 0;
    reader_.reset();
  }

  std::vector<InputFile> inputs_;
  TextOptions options_;
  const Tokenizer& tokenizer_;
  SourcePosition position_;
  int64_t skip_;        // records of the present input that were handed out before
  int64_t before_ = 0;  // bytes of the inputs that are through
  std::unique_ptr<RecordReader> reader_;
};

}  // namespace

std::unique_ptr<DocumentSource> text_documents(std::vector<InputFile> inputs, TextOptions options,
                                               const Tokenizer& tokenizer, SourcePosition from) {
  return std::make_unique<TextDocuments>(std::move(inputs), std::move(options), tokenizer, from);
}

}  // namespace smelt
