#include "apps/common/exact_json.h"

#include <charconv>

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/value_stack.hpp>

namespace smelt {
namespace {

namespace json = boost::json;
using Text = json::string_view;
using Error = json::error_code;

/// Builds the value from the parser's events, as Boost's own handler does.
struct Handler {
  static constexpr size_t max_object_size = json::object::max_size();
  static constexpr size_t max_array_size = json::array::max_size();
  static constexpr size_t max_key_size = json::string::max_size();
  static constexpr size_t max_string_size = json::string::max_size();

  json::value_stack stack;

  bool on_document_begin(Error&) { return true; }
  bool on_document_end(Error&) { return true; }
  bool on_object_begin(Error&) { return true; }
  bool on_object_end(size_t count, Error&) {
    stack.push_object(count);
    return true;
  }
  bool on_array_begin(Error&) { return true; }
  bool on_array_end(size_t count, Error&) {
    stack.push_array(count);
    return true;
  }
  bool on_key_part(Text part, size_t, Error&) {
    stack.push_chars(part);
    return true;
  }
  bool on_key(Text text, size_t, Error&) {
    stack.push_key(text);
    return true;
  }
  bool on_string_part(Text part, size_t, Error&) {
    stack.push_chars(part);
    return true;
  }
  bool on_string(Text text, size_t, Error&) {
    stack.push_string(text);
    return true;
  }
  bool on_number_part(Text, Error&) { return true; }
  bool on_int64(int64_t number, Text, Error&) {
    stack.push_int64(number);
    return true;
  }
  bool on_uint64(uint64_t number, Text, Error&) {
    stack.push_uint64(number);
    return true;
  }
  bool on_double(double nearly, Text text, Error&) {
    double exact = 0;
    const char* end = text.data() + text.size();
    const auto result = std::from_chars(text.data(), end, exact);
    stack.push_double(result.ec == std::errc() && result.ptr == end ? exact : nearly);
    return true;
  }
  bool on_bool(bool value, Error&) {
    stack.push_bool(value);
    return true;
  }
  bool on_null(Error&) {
    stack.push_null();
    return true;
  }
  bool on_comment_part(Text, Error&) { return true; }
  bool on_comment(Text, Error&) { return true; }
};

}  // namespace

json::value parse_json(std::string_view text, Error& error) {
  json::basic_parser<Handler> parser{json::parse_options{}};
  parser.handler().stack.reset();
  const size_t used = parser.write_some(false, text.data(), text.size(), error);
  if (!error && used < text.size()) error = json::error::extra_data;
  if (error) return nullptr;
  return parser.handler().stack.release();
}

}  // namespace smelt
