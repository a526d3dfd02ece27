// Where smelt-prepare's documents come from: files of text, or token files of other programs. A
// source hands out jobs in order; running a job, on any thread, gives the documents of a batch.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/uuid/uuid.hpp>

#include "apps/common/text_source.h"
#include "apps/common/tokenizer/tokenizer.h"
#include "apps/prepare/inputs.h"
#include "apps/prepare/output.h"

namespace smelt {

struct EncodedDocument {
  std::vector<int32_t> ids;   ///< the end-of-document id is the last
  int64_t bytes = 0;          ///< of its text
  boost::uuids::uuid hash{};  ///< of its text, or of its ids where there is no text
};

/// Everything up to a record of an input has been handed out.
struct SourcePosition {
  int64_t input = 0;   ///< number of the input
  int64_t record = 0;  ///< records of it: lines or documents
};

struct DocumentBatch {
  std::vector<EncodedDocument> documents;
  int64_t empty = 0;             ///< records without text
  std::vector<std::string> bad;  ///< why records could not be read, each naming file and line
  SourcePosition position;       ///< behind this batch
  int64_t consumed = 0;          ///< bytes of all inputs up to here, as stored
};

using BatchJob = std::function<DocumentBatch()>;

class DocumentSource {
 public:
  virtual ~DocumentSource() = default;
  /// The next batch, none at the end. @throws IoError
  virtual std::optional<BatchJob> next() = 0;
};

/// Documents of text files, encoded by `tokenizer`, which must outlive the jobs. Begins behind
/// `from`. Records that cannot be parsed are listed as bad.
std::unique_ptr<DocumentSource> text_documents(std::vector<InputFile> inputs, TextOptions options,
                                               const Tokenizer& tokenizer, SourcePosition from);

/// Token files that smelt-prepare reads, besides text.
enum class TokenFormat {
  megatron,  ///< PREFIX.bin and .idx
  llmc,      ///< llm.c shards: 1024 bytes header (magic 20240520: u16, 20240801: u32), then ids
  nanogpt,   ///< bare u16 ids, nanoGPT's train.bin
  bare_u32,  ///< bare u32 ids
};

/// Documents of token files. Those of llm.c and nanoGPT are what stands between end-of-document ids
/// and may go on in the next file; Megatron's are as their index says, with an end-of-document id
/// added where it is missing. Bytes are counted where `tokenizer` is given. Begins behind `from`.
/// Its jobs throw IoError for damaged files and for ids outside the vocabulary.
std::unique_ptr<DocumentSource> token_documents(std::vector<InputFile> inputs, TokenFormat format,
                                                const TokenIds& vocabulary,
                                                const Tokenizer* tokenizer, SourcePosition from);

}  // namespace smelt
