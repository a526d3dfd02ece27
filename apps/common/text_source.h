// Documents from files of text: plain (one document per file) or JSON lines, either of them also
// compressed with gzip or zstd, which the first bytes tell.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace smelt {

struct TextOptions {
  std::string text_key = "text";              ///< of the document in a JSON object
  int64_t max_line_bytes = int64_t{1} << 30;  ///< longer lines are an error
};

/// Takes a document; `line` is its line in the file, 0 for a plain file.
using DocumentSink = std::function<void(std::string text, int64_t line)>;

/// What was found in a file.
struct TextSummary {
  int64_t documents = 0;
  int64_t empty = 0;  ///< JSON lines whose text is empty, skipped
};

/// Whether the name says JSON lines: .jsonl, .ndjson or .json, before .gz, .zst or .zstd.
bool is_json_lines(const std::string& path);

/// Calls `sink` for every document of `path`, in order. Blank lines are skipped, the last line may
/// lack its line feed, lone surrogate escapes become U+FFFD; a plain file is taken byte by byte.
/// @throws IoError naming the file, and the line where there is one: not readable, damaged
///   compression, not JSON, no string under text_key.
TextSummary read_documents(const std::string& path, const TextOptions& options,
                           const DocumentSink& sink);

}  // namespace smelt
