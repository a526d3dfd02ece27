// Fields of JSON objects with errors that name file, key, value and what is allowed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <boost/json/array.hpp>
#include <boost/json/monotonic_resource.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

namespace smelt {

/// An object of a file, with the place that messages name.
struct JsonFields {
  const boost::json::object& object;
  std::string where;  // "FILE: a.b"

  /// Null if the key is absent or null.
  const boost::json::value* find(std::string_view key) const;
  bool flag(std::string_view key, bool if_absent) const;
  /// A string; empty if absent or null.
  std::string_view text(std::string_view key) const;
  std::string_view required_text(std::string_view key) const;
  int64_t required_integer(std::string_view key) const;
  JsonFields required_object(std::string_view key) const;
  const boost::json::array& required_array(std::string_view key) const;

  std::string place(std::string_view key) const { return where + ": " + std::string(key); }
  [[noreturn]] void refuse(std::string_view key, const boost::json::value* value,
                           std::string_view allowed) const;
};

/// An element of an array as an object. @throws ConfigError.
JsonFields fields_of(const boost::json::value& value, std::string where);

/// A parsed text whose values take a bounded amount of memory, the parser's own included.
class BoundedJson {
 public:
  /// @throws IoError if `text` is not a JSON object or needs more than `memory` bytes.
  BoundedJson(std::string_view text, const std::string& where, size_t memory);
  ~BoundedJson();
  JsonFields root() const { return {value_->as_object(), where_}; }

 private:
  class Limit;
  std::string where_;
  std::unique_ptr<Limit> limit_;
  std::unique_ptr<boost::json::monotonic_resource> resource_;
  std::unique_ptr<boost::json::value> value_;
};

}  // namespace smelt
