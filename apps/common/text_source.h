// Documents from files of text, plain or as JSON lines, either of them also compressed.
//
// Reading and parsing are apart, so that one thread can read while others parse: a RecordReader
// cuts the bytes into records, parse_record makes a document of one.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "apps/common/byte_source.h"

namespace smelt {

enum class TextFormat {
  automatic,   ///< JSON lines by the name or, on standard input, by a leading '{'; else plain
  json_lines,  ///< one JSON object per line
  plain,       ///< one document per file, or what stands between separators
};

struct TextOptions {
  TextFormat format = TextFormat::automatic;
  std::string text_key = "text";                ///< of the document in a JSON object
  std::string separator{};                      ///< between the documents of a plain file, or empty
  int64_t max_record_bytes = int64_t{1} << 30;  ///< longer lines and documents are an error
};

/// Bytes that make one document: a line of JSON lines, or a plain document.
struct TextRecord {
  std::string bytes;
  int64_t number = 0;  ///< line or document in the file, from 1
  bool json = false;
};

class RecordReader {
 public:
  /// @throws IoError as ByteSource does.
  RecordReader(const std::string& path, const TextOptions& options);

  /// The next record, in order; false at the end. Blank lines are passed over and counted, the last
  /// line may lack its line feed; a plain file is taken byte by byte. @throws IoError.
  bool next(TextRecord& record);
  /// Bytes taken from the file so far, before decompression.
  int64_t consumed() const { return source_.consumed(); }

 private:
  bool next_part(std::string& part);
  void fill();

  std::string path_;
  TextOptions options_;
  ByteSource source_;
  bool json_ = false;
  std::string mark_;  // what ends a record; empty: nothing but the end of the file
  std::vector<char> buffer_;
  std::string pending_;  // read but not handed out: from position begin_
  size_t begin_ = 0, searched_ = 0;
  bool at_end_ = false;
  int64_t number_ = 0;
};

/// The document in a record; none if its text is empty. Lone surrogate escapes become U+FFFD.
/// @throws IoError naming file and line: not JSON, no string under options.text_key.
std::optional<std::string> parse_record(TextRecord record, const std::string& path,
                                        const TextOptions& options);

/// Whether the name says JSON lines: .jsonl, .ndjson or .json, before .gz, .zst or .zstd.
bool is_json_lines(const std::string& path);

/// Takes a document and its number in the file.
using DocumentSink = std::function<void(std::string text, int64_t number)>;

/// What was found in a file.
struct TextSummary {
  int64_t documents = 0;
  int64_t empty = 0;  ///< records whose text is empty, skipped
};

/// Calls `sink` for every document of `path`, in order. @throws IoError as above.
TextSummary read_documents(const std::string& path, const TextOptions& options,
                           const DocumentSink& sink);

}  // namespace smelt
