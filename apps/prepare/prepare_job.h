// Inputs to the token files of one domain: on several threads, in bounded memory, and so that an
// interrupted run goes on where it was.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <boost/json/object.hpp>

#include "apps/prepare/document_source.h"

namespace smelt {

struct PrepareJob {
  std::string out;  ///< folder
  std::string domain;
  TokenIds vocabulary;
  std::optional<Split> split{};  ///< all documents there; unset: by the hash of their text
  double holdout = 0.025;        ///< share of the documents for valid, and as many for test
  bool unique = false;           ///< drop documents whose text came before
  int64_t max_bad = 0;           ///< records that may be unreadable before it is an error
  int threads = 1;
  double save_every = 60;          ///< seconds between the places where an interrupted run goes on
  bool restart = false;            ///< forget an interrupted run
  int64_t input_bytes = -1;        ///< of all inputs, for the time left; -1: unknown
  boost::json::object settings{};  ///< what must be equal for an interrupted run to go on
};

/// Makes the source that begins behind a position.
using MakeSource = std::function<std::unique_ptr<DocumentSource>(SourcePosition)>;

/// Runs the job and returns the domain's entry of corpus.json. Its state is kept in
/// DIR/.<domain>.progress.json and .hashes beside it while it is not done; a run with the same
/// settings goes on there and writes the same files as one that was not interrupted.
/// @throws ConfigError when the interrupted run had other settings, IoError for unreadable input
///   and for more than max_bad bad records, RunError when a signal stopped it.
boost::json::object run_prepare(const PrepareJob& job, const MakeSource& make_source);

/// Where a hash stands among all hashes, 0 <= place < 1.
double hash_place(const boost::uuids::uuid& hash);
/// The split of a document: by the hash of its text, so that equal documents are never apart.
Split split_by_hash(const boost::uuids::uuid& hash, double holdout);

}  // namespace smelt
