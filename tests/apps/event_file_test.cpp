// TensorBoard event files: bytes of known records, and what a reader of the format finds.
#include "apps/common/event_file.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <boost/test/unit_test.hpp>

#include "tensor/error.h"
#include "tests/apps/data_files.h"
#include "tests/apps/event_records.h"

using namespace smelt;
using namespace smelt::testing;

namespace {

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(event_file)

BOOST_AUTO_TEST_CASE(records_are_framed_as_published) {
  const std::string version = from_hex("09000000000000f03f1a0d627261696e2e4576656e743a32");
  BOOST_TEST((event_record(version) ==
              from_hex("1800000000000000a37f4b22") + version + from_hex("86bf577a")));
  const std::string loss = from_hex("09000000000000004010032a0d0a0b0a046c6f7373150000003f");
  BOOST_TEST(
      (event_record(loss) == from_hex("1a00000000000000129bd82d") + loss + from_hex("bac36b94")));
}

BOOST_AUTO_TEST_CASE(a_reader_finds_what_was_written) {
  const ScratchFolder dir;
  const std::string png =
      from_hex("89504e470d0a1a0a0000000d49484452000003c000000258080600000012345678");
  std::string path;
  {
    EventFile file(dir.path("a/b"));
    path = file.path();
    file.scalars(
        0,
        {{"zero", 0.0}, {"nan", std::nan("")}, {"inf", std::numeric_limits<double>::infinity()}});
    file.scalars(-1, {{"negative step", 1.5}});
    file.scalars(int64_t{1} << 40, {{"late", -2.25}});
    file.scalars(5, {});
    file.image(7, "picture", png);
    file.text(8, "note", "**bold** \xC3\xA9");
    BOOST_CHECK_EXCEPTION(file.image(9, "picture", "no png"), IoError, says("'picture' is no PNG"));
  }
  BOOST_TEST(std::filesystem::path(path).filename().string().starts_with("events.out.tfevents."));
  const std::vector<ReadEvent> events = read_events(path);
  BOOST_REQUIRE(events.size() == 6u);
  BOOST_TEST(events[0].file_version == "brain.Event:2");
  for (const ReadEvent& event : events)
    BOOST_TEST((event.wall_time > 1.6e9 && event.wall_time < 1e10));
  BOOST_TEST(events[1].step == 0);
  BOOST_REQUIRE(events[1].values.size() == 3u);
  BOOST_TEST(events[1].values[0].tag == "zero");
  BOOST_TEST(events[1].values[0].has_number);  // a member of a oneof is written even when 0
  BOOST_TEST(events[1].values[0].number == 0.0f);
  BOOST_TEST(std::isnan(events[1].values[1].number));
  BOOST_TEST(std::isinf(events[1].values[2].number));
  BOOST_TEST(events[2].step == -1);
  BOOST_TEST(events[3].step == int64_t{1} << 40);
  BOOST_TEST(events[3].values[0].number == -2.25f);
  BOOST_TEST(events[4].values[0].width == 960);
  BOOST_TEST(events[4].values[0].height == 600);
  BOOST_TEST((events[4].values[0].png == png));
  BOOST_TEST(events[5].values[0].text == "**bold** \xC3\xA9");
  BOOST_TEST(events[5].values[0].plugin == "text");
}

BOOST_AUTO_TEST_CASE(every_file_has_a_name_of_its_own) {
  const ScratchFolder dir;
  EventFile a(dir.path()), b(dir.path());
  BOOST_TEST(a.path() != b.path());
  write_file(dir.path("file"), "");
  BOOST_CHECK_EXCEPTION(EventFile(dir.path("file/x")), IoError, says("cannot be created"));
}

BOOST_AUTO_TEST_SUITE_END()
