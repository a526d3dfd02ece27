#include "apps/common/safetensors.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <boost/test/unit_test.hpp>
#include <signal.h>
#include <sys/resource.h>

#include "tests/apps/safetensors_bytes.h"
#include "tests/apps/scratch_folder.h"

namespace smelt::testing {
namespace {

std::vector<double> values(const Tensor& x) { return x.to(DType::f64).to_vector<double>(); }

Tensor counting(Shape shape, DType dtype, double first = 0) {
  std::vector<double> all(size_t(numel_of(shape)));
  for (size_t i = 0; i < all.size(); ++i) all[i] = first + double(i);
  return Tensor::from(all, std::move(shape)).to(dtype);
}

void write_all(const std::filesystem::path& path,
               const std::vector<std::pair<std::string, Tensor>>& tensors,
               const SafetensorsMetadata& metadata = kDefaultMetadata) {
  std::vector<TensorSpec> specs;
  for (const auto& [name, tensor] : tensors)
    specs.push_back({name, tensor.dtype(), tensor.shape()});
  SafetensorsWriter writer(path, specs, metadata);
  for (const TensorSpec& spec : writer.order()) {
    for (const auto& [name, tensor] : tensors) {
      if (name == spec.name) writer.write(name, tensor);
    }
  }
  writer.publish();
}

std::vector<std::string> listing(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(safetensors)

BOOST_AUTO_TEST_CASE(writes_the_bytes_of_the_reference_implementation) {
  const ScratchFolder scratch;
  write_all(scratch / "one", {{"attn.0", counting({1, 2, 3}, DType::f32)}}, {});
  std::string expected = u64(64) +
                         "{\"attn.0\":{\"dtype\":\"F32\",\"shape\":[1,2,3],"
                         "\"data_offsets\":[0,24]}}";
  for (const float value : {0.f, 1.f, 2.f, 3.f, 4.f, 5.f}) {
    expected.append(reinterpret_cast<const char*>(&value), 4);
  }
  BOOST_TEST(expected.size() == 8u + 64 + 24);
  BOOST_TEST((read_file(scratch / "one") == expected));
  write_all(scratch / "none", {}, {});
  BOOST_TEST((read_file(scratch / "none") == u64(8) + "{}      "));
}

BOOST_AUTO_TEST_CASE(orders_by_dtype_then_name_with_metadata_first) {
  const ScratchFolder scratch;
  write_all(scratch / "x", {{"b", counting({2}, DType::bf16)},
                            {"a", counting({1}, DType::bf16)},
                            {"f", counting({}, DType::f32)},
                            {"d", counting({1}, DType::f64)},
                            {"w", counting({1}, DType::i32)},
                            {"z", counting({0, 3}, DType::i64)},
                            {"B\"\n", counting({1}, DType::i64)}});
  const std::string bytes = read_file(scratch / "x");
  const std::string header =
      "{\"__metadata__\":{\"format\":\"pt\"},"
      "\"B\\\"\\n\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]},"
      "\"z\":{\"dtype\":\"I64\",\"shape\":[0,3],\"data_offsets\":[8,8]},"
      "\"d\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[8,16]},"
      "\"f\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[16,20]},"
      "\"w\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[20,24]},"
      "\"a\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[24,26]},"
      "\"b\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[26,30]}}";
  BOOST_TEST(bytes.substr(8, header.size()) == header);
  const size_t padded = (header.size() + 7) / 8 * 8;
  BOOST_TEST(bytes.substr(0, 8) == u64(padded));
  BOOST_TEST(bytes.substr(8 + header.size(), padded - header.size()) ==
             std::string(padded - header.size(), ' '));
  BOOST_TEST(bytes.size() == 8 + padded + 30);
}

BOOST_AUTO_TEST_CASE(reads_back_every_dtype_bit_for_bit) {
  const ScratchFolder scratch;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64, DType::i32, DType::i64}) {
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{3, 0, 2}, Shape{7}, Shape{2, 3, 5}}) {
      BOOST_TEST_CONTEXT(name_of(dtype) << " " << to_string(shape)) {
        const Tensor x = counting(shape, dtype, -3);
        write_all(scratch / "x", {{"x", x}});
        const SafetensorsFile file(scratch / "x");
        const Tensor y = file.read("x");
        BOOST_TEST((y.dtype() == dtype));
        BOOST_TEST(y.shape() == shape, boost::test_tools::per_element());
        BOOST_TEST((y.numel() == 0 || std::memcmp(x.raw(), y.raw(), size_t(x.bytes())) == 0));
        BOOST_TEST(file.metadata().at("format") == "pt");
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(keeps_nan_payloads_and_infinities) {
  const ScratchFolder scratch;
  const Tensor x = Tensor::from(std::vector<int32_t>{0x7fc12345, int32_t(0xff800000), 0x7f800001});
  write_file(scratch / "x",
             file_bytes("{\"x\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}", 0) +
                 std::string(static_cast<const char*>(x.raw()), 12));
  const SafetensorsFile file(scratch / "x");
  write_all(scratch / "y", {{"x", file.read("x")}});
  const Tensor y = SafetensorsFile(scratch / "y").read("x");
  BOOST_TEST(std::memcmp(x.raw(), y.raw(), 12) == 0);
}

BOOST_AUTO_TEST_CASE(reads_tensors_that_are_not_aligned_to_their_type) {
  const ScratchFolder scratch;
  const Tensor x = Tensor::from(std::vector<double>{1.5, -2});
  write_file(scratch / "x",
             file_bytes("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                        "\"x\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[1,17]}}",
                        1) +
                 std::string(static_cast<const char*>(x.raw()), 16));
  const SafetensorsFile file(scratch / "x");
  BOOST_TEST(values(file.read("x")) == values(x), boost::test_tools::per_element());
  BOOST_CHECK_THROW(file.read("a"), IoError);  // U8 is a fault only now
  BOOST_CHECK_THROW(file.read("y"), IoError);
  BOOST_TEST(file.info("a").dtype == "U8");
}

BOOST_AUTO_TEST_CASE(converts_every_half_precision_value) {
  std::string bytes = "{\"h\":{\"dtype\":\"F16\",\"shape\":[65536],\"data_offsets\":[0,131072]}}";
  bytes = u64(bytes.size()) + bytes;
  for (int i = 0; i < 65536; ++i) bytes.append({char(i & 0xff), char(i >> 8)});
  const ScratchFolder scratch;
  const Tensor h = SafetensorsFile(write_file(scratch / "x", bytes)).read("h");
  BOOST_TEST((h.dtype() == DType::f32));
  for (int i = 0; i < 65536; ++i) {
    const int exponent = i >> 10 & 31;
    const int mantissa = i & 1023;
    double expected = exponent == 0    ? std::ldexp(mantissa, -24)
                      : exponent == 31 ? (mantissa ? NAN : INFINITY)
                                       : std::ldexp(1024 + mantissa, exponent - 25);
    if (i & 0x8000) expected = -expected;
    const float got = h.data<float>()[i];
    BOOST_REQUIRE_MESSAGE(std::isnan(expected) ? std::isnan(got)
                                               : got == float(expected) &&
                                                     std::signbit(got) == std::signbit(expected),
                          i << " reads as " << got);
  }
}

BOOST_AUTO_TEST_CASE(writes_half_precision_to_the_nearest_even) {
  // Every half that is a number, and between each and the next: below, at and above the middle.
  std::vector<float> given, expected;
  const auto half = [](uint32_t magnitude) {
    const int exponent = int(magnitude >> 10);
    const double mantissa = double(magnitude & 0x3ff) / 1024;
    return exponent == 0 ? std::ldexp(mantissa, -14) : std::ldexp(1 + mantissa, exponent - 15);
  };
  for (uint32_t h = 0; h < 0x7bff; ++h) {
    const double low = half(h), high = half(h + 1), middle = (low + high) / 2;
    const double even = h % 2 == 0 ? low : high;
    for (const auto& [x, y] : {std::pair{low, low},
                               {std::nextafter(float(middle), 0.f), low},
                               {middle, even},
                               {std::nextafter(float(middle), 1e9f), high}}) {
      for (const double sign : {1.0, -1.0}) {
        given.push_back(float(sign * x));
        expected.push_back(float(sign * y));
      }
    }
  }
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const auto& [x, y] : {std::pair{65504.f, 65504.f},
                             {65519.99f, 65504.f},
                             {65520.f, kInf},
                             {1e30f, kInf},
                             {-kInf, -kInf},
                             {1e-30f, 0.f}}) {
    given.push_back(x);
    expected.push_back(y);
  }
  given.push_back(std::nanf(""));
  const ScratchFolder scratch;
  const auto count = int64_t(given.size());
  SafetensorsWriter writer(scratch / "a", {{"x", DType::f32, {count}, true}});
  writer.write("x", Tensor::from(given));
  writer.publish();
  const SafetensorsFile file(scratch / "a");
  BOOST_TEST(file.info("x").dtype == "F16");
  BOOST_TEST(file.info("x").end == 2 * count);
  const auto read = file.read("x").to_vector<float>();
  for (size_t i = 0; i < expected.size(); ++i)
    BOOST_REQUIRE_MESSAGE(
        read[i] == expected[i] && std::signbit(read[i]) == std::signbit(expected[i]),
        given[i] << " became " << read[i] << ", not " << expected[i]);
  BOOST_TEST(std::isnan(read.back()));
}

BOOST_AUTO_TEST_CASE(many_reads_at_once_fill_what_single_ones_do) {
  const ScratchFolder scratch;
  const Tensor large = counting({700, 1000}, DType::f32), small = counting({3, 4}, DType::bf16, 7);
  write_all(scratch / "a", {{"large", large}, {"small", small}});
  write_all(scratch / "b", {{"other", counting({5}, DType::f64, -2)}});
  const SafetensorsFile a(scratch / "a"), b(scratch / "b");
  const Tensor whole = Tensor::zeros({1000, 700}), part = Tensor::zeros({2, 3}, {DType::f64, {}}),
               rounded = Tensor::zeros({300, 1000}, {DType::bf16, {}}), other = Tensor::zeros({4});
  read_all({{&b, "other", other, 1},
            {&a, "large", whole.transpose(0, 1), 0},  // strided: one read alone
            {&a, "small", part, 5},
            {&a, "large", rounded, 400'000}});
  BOOST_CHECK(values(whole.transpose(0, 1)) == values(large));
  BOOST_CHECK(values(part) == (std::vector<double>{12, 13, 14, 15, 16, 17}));
  BOOST_CHECK(values(rounded) == values(large.slice(0, 400, 700).to(DType::bf16)));
  BOOST_CHECK(values(other) == (std::vector<double>{-1, 0, 1, 2}));
  const auto refused = [&](const TensorRead& read, const std::string& text) {
    BOOST_CHECK_EXCEPTION(read_all({read}), IoError, [&](const IoError& e) {
      return std::string(e.what()).find(text) != std::string::npos;
    });
  };
  refused({&a, "small", part, 7}, "has 12 elements; it has no 6 from 7 on");
  refused({&a, "none", part, 0}, "no tensor \"none\"");
  // A file that shrinks after it was opened is an error of whichever thread meets it.
  std::filesystem::resize_file(scratch / "a", 2'000'000);
  refused({&a, "large", whole.view({700, 1000}), 0}, "it was cut after it was opened");
}

BOOST_AUTO_TEST_CASE(reads_rows_into_views_and_other_dtypes) {
  const ScratchFolder scratch;
  const Tensor x = counting({5, 2, 3}, DType::f32);
  write_all(scratch / "x", {{"x", x}, {"i", counting({2}, DType::i32)}});
  const SafetensorsFile file(scratch / "x");
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    for (int64_t begin = 0; begin <= 5; ++begin) {
      for (int64_t end = begin; end <= 5; ++end) {
        const Tensor rows = Tensor::full({end - begin, 2, 3}, -1, {dtype, {}});
        file.read_into("x", rows, begin, end);
        BOOST_TEST(values(rows) == values(x.slice(0, begin, end)),
                   boost::test_tools::per_element());
      }
    }
  }
  const Tensor wide = Tensor::full({2, 2, 5}, -1);
  file.read_into("x", wide.slice(2, 1, 4), 1, 3);
  BOOST_TEST(values(wide.slice(2, 1, 4)) == values(x.slice(0, 1, 3)),
             boost::test_tools::per_element());
  BOOST_TEST(values(wide.slice(2, 0, 1)) == std::vector<double>(4, -1),
             boost::test_tools::per_element());
  BOOST_TEST(values(wide.slice(2, 4, 5)) == std::vector<double>(4, -1),
             boost::test_tools::per_element());
  const Tensor turned = Tensor::zeros({3, 2, 5});
  file.read_into("x", turned.transpose(0, 2));
  BOOST_TEST(values(turned.transpose(0, 2)) == values(x), boost::test_tools::per_element());

  BOOST_CHECK_THROW(file.read_into("x", Tensor::zeros({2, 2, 3}), 4, 6), IoError);
  BOOST_CHECK_THROW(file.read_into("x", Tensor::zeros({2, 2, 3}), -1, 1), IoError);
  BOOST_CHECK_THROW(file.read_into("x", Tensor::zeros({2, 2, 3}), 0, 3), IoError);
  BOOST_CHECK_THROW(file.read_into("x", Tensor::zeros({5, 6})), IoError);
  BOOST_CHECK_THROW(file.read_into("i", Tensor::zeros({2})), IoError);
  BOOST_CHECK_THROW(file.read_into("x", counting({5, 2, 3}, DType::i64)), IoError);
}

BOOST_AUTO_TEST_CASE(writes_views_by_their_logical_values) {  // case 93
  const ScratchFolder scratch;
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 3, 4}, {2, 2});
  write_all(scratch / "x", {{"turned", x.transpose(0, 1)},
                            {"column", x.slice(1, 0, 1)},
                            {"row", x.slice(0, 1, 2)},
                            {"repeated", x.slice(0, 0, 1).expand({2, 2})},
                            {"whole", x}});
  const SafetensorsFile file(scratch / "x");
  const auto check = [&](const char* name, const std::vector<double>& expected) {
    BOOST_TEST(values(file.read(name)) == expected, boost::test_tools::per_element());
  };
  check("turned", {1, 3, 2, 4});
  check("column", {1, 3});
  check("row", {3, 4});
  check("repeated", {1, 2, 1, 2});
  check("whole", {1, 2, 3, 4});
}

BOOST_AUTO_TEST_CASE(views_and_conversions_larger_than_a_block_are_whole) {
  const ScratchFolder scratch;
  const Tensor x = counting({1, 3, 701, 1009}, DType::f32);  // 8.5 MB, odd in every dimension
  const Tensor turned = x.transpose(2, 3);
  SafetensorsWriter writer(scratch / "x", {{"as_f64", DType::f64, turned.shape()},
                                           {"turned", DType::f32, turned.shape()}});
  writer.write("as_f64", turned);
  writer.write("turned", turned);
  writer.publish();
  const SafetensorsFile file(scratch / "x");
  const auto expected = turned.to_vector<float>();
  BOOST_TEST((file.read("turned").to_vector<float>() == expected));
  const Tensor back = Tensor::zeros(x.shape());
  file.read_into("as_f64", back.transpose(2, 3));
  BOOST_TEST((back.to_vector<float>() == x.to_vector<float>()));
}

BOOST_AUTO_TEST_CASE(refuses_what_a_reader_would_refuse) {
  const ScratchFolder scratch;
  const auto writer = [&](std::vector<TensorSpec> specs) {
    SafetensorsWriter(scratch / "x", std::move(specs));
  };
  BOOST_CHECK_THROW(writer({{"a", DType::f32, {1}}, {"a", DType::f64, {1}}}), ConfigError);
  BOOST_CHECK_THROW(writer({{"__metadata__", DType::f32, {1}}}), ConfigError);
  BOOST_CHECK_THROW(writer({{std::string("a\0b", 3), DType::f32, {1}}}), ConfigError);
  BOOST_CHECK_THROW(writer({{std::string(1025, 'n'), DType::f32, {1}}}), ConfigError);
  BOOST_CHECK_THROW(writer({{"a", DType::f32, Shape(17, 1)}}), ConfigError);
  BOOST_CHECK_THROW(writer({{"a", DType::f32, {int64_t(1) << 61}}}), ConfigError);
  BOOST_TEST(std::filesystem::is_empty(scratch.path()));
}

BOOST_AUTO_TEST_CASE(refuses_tensors_that_differ_from_their_declaration) {
  const ScratchFolder scratch;
  {
    SafetensorsWriter writer(scratch / "x", {{"a", DType::f32, {2}}, {"b", DType::f32, {2}}});
    BOOST_CHECK_THROW(writer.write("b", Tensor::zeros({2})), ShapeError);  // out of turn
    BOOST_CHECK_THROW(writer.write("a", Tensor::zeros({3})), ShapeError);
    BOOST_CHECK_THROW(writer.write("a", counting({2}, DType::i32)), DTypeError);
    BOOST_CHECK_THROW(writer.write("a", Tensor()), ShapeError);
    writer.write("a", Tensor::zeros({2}));
    BOOST_CHECK_THROW(writer.publish(), ShapeError);  // b is missing
  }
  BOOST_TEST(std::filesystem::is_empty(scratch.path()));
}

BOOST_AUTO_TEST_CASE(plans_shards_greedily_in_the_declared_order) {
  const auto plan = [](const std::vector<int64_t>& sizes, int64_t cap) {
    std::vector<TensorSpec> specs;
    for (size_t i = 0; i < sizes.size(); ++i) {
      specs.push_back({std::string(1, char('a' + i)), DType::f32, {sizes[i]}});
    }
    std::string text;
    for (const auto& shard : plan_shards(specs, cap)) {
      text += "|";
      for (const TensorSpec& spec : shard) text += spec.name;
    }
    return text;
  };
  BOOST_TEST(plan({1, 2, 3}, 24) == "|abc");
  BOOST_TEST(plan({1, 2, 3}, 23) == "|ab|c");
  BOOST_TEST(plan({1, 2, 3}, 12) == "|ab|c");
  BOOST_TEST(plan({3, 1, 2}, 11) == "|a|b|c");  // a is too large, b + c = 12 > 11
  BOOST_TEST(plan({1, 9, 1}, 8) == "|b|ac");    // a too large tensor does not end the shard
  BOOST_TEST(plan({0, 9, 0}, 1) == "|b|ac");
  BOOST_TEST(plan({}, 1) == "|");
  BOOST_CHECK_THROW(plan({1}, 0), ConfigError);
}

BOOST_AUTO_TEST_CASE(writes_and_opens_a_sharded_model) {
  const ScratchFolder scratch;
  const std::vector<TensorSpec> specs = {{"embed", DType::f32, {3}},
                                         {"layer.b", DType::bf16, {2}},
                                         {"layer.a", DType::f32, {1}},
                                         {"head", DType::f32, {2}}};
  ShardedWriter writer(scratch.path(), "model", 12, specs);
  std::string order;
  for (const TensorSpec& spec : writer.order()) order += spec.name + " ";
  BOOST_TEST(order == "embed layer.a layer.b head ");
  double first = 1;
  for (const TensorSpec& spec : writer.order()) {
    writer.write(spec.name, counting(spec.shape, spec.dtype, first));
    first *= 10;
  }
  for (const std::string& name : listing(scratch.path())) {
    BOOST_TEST(name.find(".tmp-") != std::string::npos, name);  // nothing is there before the end
  }
  writer.publish();
  BOOST_TEST(listing(scratch.path()) ==
                 (std::vector<std::string>{
                     "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                     "model-00003-of-00003.safetensors", "model.safetensors.index.json"}),
             boost::test_tools::per_element());
  BOOST_TEST(read_file(scratch / "model.safetensors.index.json") ==
             "{\n"
             "  \"metadata\": {\n"
             "    \"total_parameters\": 8,\n"
             "    \"total_size\": 28\n"
             "  },\n"
             "  \"weight_map\": {\n"
             "    \"embed\": \"model-00001-of-00003.safetensors\",\n"
             "    \"head\": \"model-00003-of-00003.safetensors\",\n"
             "    \"layer.a\": \"model-00002-of-00003.safetensors\",\n"
             "    \"layer.b\": \"model-00002-of-00003.safetensors\"\n"
             "  }\n"
             "}\n");
  const SafetensorsFolder folder(scratch.path());
  BOOST_TEST(folder.names().size() == 4u);
  BOOST_TEST(folder.files().size() == 3u);
  BOOST_TEST(values(folder.read("embed")) == (std::vector<double>{1, 2, 3}),
             boost::test_tools::per_element());
  BOOST_TEST(values(folder.read("layer.b")) == (std::vector<double>{100, 101}),
             boost::test_tools::per_element());
  const Tensor last = Tensor::zeros({1});
  folder.read_into("head", last, 1, 2);
  BOOST_TEST(last.item() == 1001);
  BOOST_TEST(folder.file_of("head").path().filename() == "model-00003-of-00003.safetensors");
  BOOST_CHECK_THROW(folder.read("tail"), IoError);
  // A second save into the same folder would mix old shards with new ones.
  BOOST_CHECK_THROW(ShardedWriter(scratch.path(), "model", 12, specs), ConfigError);

  ShardedWriter optimizer(scratch.path(), "optimizer", 1 << 20, {{"m", DType::f32, {1}}});
  optimizer.write("m", Tensor::zeros({1}));
  optimizer.publish();
  BOOST_TEST(SafetensorsFolder(scratch.path(), "optimizer").contains("m"));
  BOOST_TEST(std::filesystem::exists(scratch / "optimizer.safetensors"));
}

BOOST_AUTO_TEST_CASE(an_unfinished_sharded_save_leaves_nothing) {
  const ScratchFolder scratch;
  {
    ShardedWriter writer(scratch.path(), "model", 4,
                         {{"a", DType::f32, {1}}, {"b", DType::f32, {1}}});
    writer.write("a", Tensor::zeros({1}));
    BOOST_CHECK_THROW(writer.publish(), ShapeError);
  }
  BOOST_TEST(std::filesystem::is_empty(scratch.path()));
}

BOOST_AUTO_TEST_CASE(a_full_disk_is_a_run_error_and_publishes_nothing) {
  const ScratchFolder scratch;
  write_file(scratch / "x", "older");
  const auto previous = signal(SIGXFSZ, SIG_IGN);
  rlimit limit = {};
  BOOST_REQUIRE_EQUAL(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit full = {100'000, limit.rlim_max};
  for (const int64_t size : {30'000, 24'900}) {  // far above the limit, and only just
    BOOST_REQUIRE_EQUAL(setrlimit(RLIMIT_FSIZE, &full), 0);
    BOOST_CHECK_EXCEPTION(
        write_all(scratch / "x", {{"x", Tensor::zeros({size})}, {"y", Tensor::zeros({100})}}),
        RunError, [&](const RunError& e) {
          const std::string text = e.what();
          return text.find((scratch / "x").string() + ": cannot write") == 0;
        });
    BOOST_REQUIRE_EQUAL(setrlimit(RLIMIT_FSIZE, &limit), 0);
    BOOST_TEST(read_file(scratch / "x") == "older");
    BOOST_TEST(listing(scratch.path()).size() == 1u);
  }
  signal(SIGXFSZ, previous);
  BOOST_CHECK_THROW(write_all(scratch / "no-such-folder" / "x", {}), RunError);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace smelt::testing
