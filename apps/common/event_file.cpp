#include "apps/common/event_file.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include <boost/crc.hpp>
#include <protozero/pbf_writer.hpp>
#include <unistd.h>

#include "tensor/error.h"

namespace smelt {
namespace {

using protozero::pbf_writer;

// Field numbers of tensorboard/compat/proto: event, summary, tensor and tensor_shape.
enum Event : unsigned { wall_time = 1, step_number = 2, file_version = 3, summary = 5 };
enum Summary : unsigned { value = 1 };
enum Value : unsigned { tag_name = 1, simple_value = 2, picture = 4, tensor = 8, metadata = 9 };
enum Metadata : unsigned { plugin_data = 1 };
enum PluginData : unsigned { plugin_name = 1 };
enum Image : unsigned { height = 1, width = 2, colorspace = 3, encoded = 4 };
enum TensorProto : unsigned { dtype = 1, shape = 2, string_val = 8 };
enum TensorShape : unsigned { dim = 2 };
enum Dim : unsigned { size = 1 };
constexpr int32_t kString = 7;  // DT_STRING

uint32_t masked_crc(std::string_view data) {
  boost::crc_optimal<32, 0x1EDC6F41, ~0u, ~0u, true, true> crc;  // CRC-32C (Castagnoli)
  crc.process_bytes(data.data(), data.size());
  const uint32_t c = crc.checksum();
  return ((c >> 15) | (c << 17)) + 0xA282EAD8u;
}

template <typename T>
void put(std::string& out, T number) {
  char bytes[sizeof number];
  std::memcpy(bytes, &number, sizeof number);
  out.append(bytes, sizeof number);
}

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// An Event whose summary has one Value for each call of `fill`.
template <typename Fill>
std::string summary_event(int64_t at_step, size_t count, Fill fill) {
  std::string event;
  pbf_writer writer(event);
  writer.add_double(Event::wall_time, now());
  writer.add_int64(Event::step_number, at_step);
  pbf_writer sum(writer, Event::summary);
  for (size_t i = 0; i < count; ++i) {
    pbf_writer entry(sum, Summary::value);
    fill(entry, i);
  }
  return event;
}

/// A file name of its own in `folder`, which is created: events.out.tfevents.TIME.HOST.PROCESS.N
std::string new_path(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  SMELT_CHECK(IoError, !error, folder << ": cannot be created: " << error.message());
  static std::atomic<int> counter = 0;
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) std::strcpy(host.data(), "localhost");
  char name[400];
  std::snprintf(name, sizeof name, "/events.out.tfevents.%010lld.%s.%d.%d",
                static_cast<long long>(now()), host.data(), int(getpid()), counter++);
  return folder + name;
}

uint32_t big_endian(std::string_view bytes) {
  uint32_t number = 0;
  for (const char c : bytes) number = number << 8 | static_cast<unsigned char>(c);
  return number;
}

}  // namespace

std::string event_record(std::string_view data) {
  std::string length, record;
  put(length, static_cast<uint64_t>(data.size()));
  record = length;
  put(record, masked_crc(length));
  record += data;
  put(record, masked_crc(data));
  return record;
}

EventFile::EventFile(const std::string& folder) : file_(new_path(folder)) {
  std::string event;
  pbf_writer writer(event);
  writer.add_double(Event::wall_time, now());
  writer.add_string(Event::file_version, "brain.Event:2");
  file_.append(event_record(event));
}

void EventFile::scalars(int64_t step, const std::vector<std::pair<std::string, double>>& values) {
  if (values.empty()) return;
  file_.append(event_record(summary_event(step, values.size(), [&](pbf_writer& entry, size_t i) {
    entry.add_string(Value::tag_name, values[i].first);
    entry.add_float(Value::simple_value, static_cast<float>(values[i].second));
  })));
}

void EventFile::image(int64_t step, const std::string& tag, std::string_view png) {
  // Signature, then the chunk IHDR: length, name, width, height.
  SMELT_CHECK(
      IoError,
      png.size() >= 24 && png.substr(0, 8) == "\x89PNG\r\n\x1a\n" && png.substr(12, 4) == "IHDR",
      "event file: the picture '" << tag << "' is no PNG");
  file_.append(event_record(summary_event(step, 1, [&](pbf_writer& entry, size_t) {
    entry.add_string(Value::tag_name, tag);
    pbf_writer of_image(entry, Value::picture);
    of_image.add_int32(Image::height, static_cast<int32_t>(big_endian(png.substr(20, 4))));
    of_image.add_int32(Image::width, static_cast<int32_t>(big_endian(png.substr(16, 4))));
    of_image.add_int32(Image::colorspace, 3);  // RGB
    of_image.add_bytes(Image::encoded, png.data(), png.size());
  })));
}

void EventFile::text(int64_t step, const std::string& tag, std::string_view markdown) {
  file_.append(event_record(summary_event(step, 1, [&](pbf_writer& entry, size_t) {
    entry.add_string(Value::tag_name, tag);
    {
      pbf_writer of_tensor(entry, Value::tensor);
      of_tensor.add_enum(TensorProto::dtype, kString);
      {
        pbf_writer of_shape(of_tensor, TensorProto::shape);
        pbf_writer of_dim(of_shape, TensorShape::dim);
        of_dim.add_int64(Dim::size, 1);
      }
      of_tensor.add_bytes(TensorProto::string_val, markdown.data(), markdown.size());
    }
    pbf_writer of_metadata(entry, Value::metadata);
    pbf_writer of_plugin(of_metadata, Metadata::plugin_data);
    of_plugin.add_string(PluginData::plugin_name, "text");
  })));
}

}  // namespace smelt
