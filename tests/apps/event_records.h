// A reader of TensorBoard event files for tests, by way of protozero's decoder.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <boost/crc.hpp>
#include <boost/test/unit_test.hpp>
#include <protozero/pbf_reader.hpp>

#include "tests/apps/scratch_folder.h"

namespace smelt::testing {

struct ReadValue {
  std::string tag, text, plugin, png;
  float number = 0;
  bool has_number = false;
  int width = 0, height = 0;
};
struct ReadEvent {
  double wall_time = 0;
  int64_t step = 0;
  std::string file_version;
  std::vector<ReadValue> values;
};

inline ReadValue read_value(protozero::pbf_reader value) {
  ReadValue result;
  while (value.next()) {
    switch (value.tag()) {
      case 1:
        result.tag = value.get_string();
        break;
      case 2:
        result.number = value.get_float();
        result.has_number = true;
        break;
      case 4:
        for (protozero::pbf_reader image = value.get_message(); image.next();) {
          if (image.tag() == 1) {
            result.height = image.get_int32();
          } else if (image.tag() == 2) {
            result.width = image.get_int32();
          } else if (image.tag() == 4) {
            result.png = image.get_bytes();
          } else {
            image.skip();
          }
        }
        break;
      case 8:
        for (protozero::pbf_reader tensor = value.get_message(); tensor.next();) {
          if (tensor.tag() == 8) {
            result.text = tensor.get_bytes();
          } else {
            tensor.skip();
          }
        }
        break;
      case 9:
        for (protozero::pbf_reader metadata = value.get_message(); metadata.next();) {
          if (metadata.tag() != 1) {
            metadata.skip();
            continue;
          }
          for (protozero::pbf_reader plugin = metadata.get_message(); plugin.next();) {
            if (plugin.tag() == 1) {
              result.plugin = plugin.get_string();
            } else {
              plugin.skip();
            }
          }
        }
        break;
      default:
        value.skip();
    }
  }
  return result;
}

/// All records of a file; lengths and checksums are checked on the way.
inline std::vector<ReadEvent> read_events(const std::string& path) {
  const auto checksum = [](const std::string& bytes) {
    boost::crc_optimal<32, 0x1EDC6F41, ~0u, ~0u, true, true> crc;
    crc.process_bytes(bytes.data(), bytes.size());
    const uint32_t c = crc.checksum();
    return ((c >> 15) | (c << 17)) + 0xA282EAD8u;
  };
  const std::string file = read_file(path);
  std::vector<ReadEvent> events;
  for (size_t at = 0; at < file.size();) {
    BOOST_REQUIRE(file.size() - at >= 16);
    uint64_t length = 0;
    uint32_t length_check = 0, check = 0;
    std::memcpy(&length, file.data() + at, 8);
    std::memcpy(&length_check, file.data() + at + 8, 4);
    BOOST_REQUIRE(length_check == checksum(file.substr(at, 8)));
    BOOST_REQUIRE(length <= file.size() - at - 16);
    const std::string data = file.substr(at + 12, length);
    std::memcpy(&check, file.data() + at + 12 + length, 4);
    BOOST_REQUIRE(check == checksum(data));
    at += 16 + length;
    ReadEvent event;
    for (protozero::pbf_reader reader(data); reader.next();) {
      if (reader.tag() == 1) {
        event.wall_time = reader.get_double();
      } else if (reader.tag() == 2) {
        event.step = reader.get_int64();
      } else if (reader.tag() == 3) {
        event.file_version = reader.get_string();
      } else if (reader.tag() == 5) {
        for (protozero::pbf_reader summary = reader.get_message(); summary.next();)
          event.values.push_back(read_value(summary.get_message()));
      } else {
        reader.skip();
      }
    }
    events.push_back(event);
  }
  return events;
}

}  // namespace smelt::testing
