#include "apps/common/tokenizer/json_fields.h"

#include <new>

#include <boost/json/memory_resource.hpp>
#include <boost/json/parser.hpp>
#include <boost/json/serialize.hpp>

#include "tensor/error.h"

namespace smelt {

namespace json = boost::json;

const json::value* JsonFields::find(std::string_view key) const {
  const json::value* value = object.if_contains(json::string_view(key.data(), key.size()));
  return value == nullptr || value->is_null() ? nullptr : value;
}

void JsonFields::refuse(std::string_view key, const json::value* value,
                        std::string_view allowed) const {
  constexpr size_t kShown = 120;
  std::string shown = "absent or null";
  if (value != nullptr && (value->is_object() || value->is_array())) {
    shown = value->is_object() ? "an object" : "an array";
  } else if (value != nullptr) {
    shown = json::serialize(*value);
    if (shown.size() > kShown) shown = shown.substr(0, kShown) + "...";
  }
  throw ConfigError(place(key) + " is " + shown + "; allowed is " + std::string(allowed));
}

bool JsonFields::flag(std::string_view key, bool if_absent) const {
  const json::value* value = find(key);
  if (value == nullptr) return if_absent;
  if (!value->is_bool()) refuse(key, value, "true or false");
  return value->as_bool();
}

std::string_view JsonFields::text(std::string_view key) const {
  const json::value* value = find(key);
  if (value == nullptr) return {};
  if (!value->is_string()) refuse(key, value, "a string");
  return {value->as_string().data(), value->as_string().size()};
}

std::string_view JsonFields::required_text(std::string_view key) const {
  if (find(key) == nullptr) refuse(key, nullptr, "a string");
  return text(key);
}

int64_t JsonFields::required_integer(std::string_view key) const {
  const json::value* value = find(key);
  if (value == nullptr || !value->is_int64()) refuse(key, value, "an integer");
  return value->as_int64();
}

JsonFields JsonFields::required_object(std::string_view key) const {
  const json::value* value = find(key);
  if (value == nullptr || !value->is_object()) refuse(key, value, "an object");
  return {value->as_object(), place(key)};
}

const json::array& JsonFields::required_array(std::string_view key) const {
  const json::value* value = find(key);
  if (value == nullptr || !value->is_array()) refuse(key, value, "an array");
  return value->as_array();
}

JsonFields fields_of(const json::value& value, std::string where) {
  SMELT_CHECK(ConfigError, value.is_object(), where << " must be an object");
  return {value.as_object(), std::move(where)};
}

class BoundedJson::Limit final : public json::memory_resource {
 public:
  explicit Limit(size_t bytes) : left_(bytes) {}

 private:
  void* do_allocate(size_t bytes, size_t alignment) override {
    if (bytes > left_) throw std::bad_alloc();
    void* p = ::operator new(bytes, std::align_val_t(alignment));
    left_ -= bytes;
    return p;
  }
  void do_deallocate(void* p, size_t bytes, size_t alignment) override {
    ::operator delete(p, std::align_val_t(alignment));
    left_ += bytes;
  }
  bool do_is_equal(const json::memory_resource& other) const noexcept override {
    return this == &other;
  }

  size_t left_;
};

BoundedJson::BoundedJson(std::string_view text, const std::string& where, size_t memory)
    : where_(where),
      limit_(std::make_unique<Limit>(memory)),
      resource_(std::make_unique<json::monotonic_resource>(4096, json::storage_ptr(limit_.get()))) {
  json::error_code error;
  try {
    json::parser parser{json::storage_ptr(limit_.get())};
    parser.reset(json::storage_ptr(resource_.get()));
    parser.write(text.data(), text.size(), error);
    if (!error) value_ = std::make_unique<json::value>(parser.release());
  } catch (const std::bad_alloc&) {
    throw IoError(where + ": its values take more than " + std::to_string(memory) +
                  " bytes of memory");
  }
  SMELT_CHECK(IoError, !error, where << ": not valid JSON: " << error.message());
  SMELT_CHECK(IoError, value_->is_object(), where << ": expected a JSON object");
}

BoundedJson::~BoundedJson() = default;

}  // namespace smelt
