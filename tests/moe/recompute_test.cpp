// Recomputation changes memory and nothing else.
#include "tensor/allocator.h"
#include "tests/moe/models.h"

using namespace smelt;
using namespace smelt::testing;

namespace {

constexpr Recompute kModes[] = {Recompute::none, Recompute::moe, Recompute::block};

}  // namespace

BOOST_AUTO_TEST_SUITE(recompute)

BOOST_AUTO_TEST_CASE(gradients_are_bit_equal_and_loads_are_counted_once) {  // CASES 13, 41
  for (const LoopKv kv : {LoopKv::own, LoopKv::first}) {
    for (const int64_t visits : {1, 2, 4}) {
      for (const AuxScope scope : {AuxScope::sequence, AuxScope::batch}) {
        BOOST_TEST_CONTEXT("kv " << int(kv) << ", visits " << visits) {
          ModelConfig config = tiny_config(visits, LoopOrder::span, kv);
          config.shared_expert_hidden_size = 10;
          const ModelInput input = random_batch(1, 8, 51, true).input();
          NamedTensors plain;
          std::vector<std::vector<double>> loads;
          for (const Recompute mode : kModes) {
            const auto model = make_model(config, DType::f32);
            model->set_recompute(mode);
            run_backward(*model, input, {.aux_scope = scope});
            std::vector<std::vector<double>> counted;
            std::vector<double> per_layer(4, 0.0);
            for (size_t i = 0; i < model->plan().steps().size(); ++i) {
              counted.push_back(model->load().counts(int64_t(i)));
              for (const double c : counted.back())
                per_layer[size_t(model->plan().steps()[i].layer)] += c;
            }
            BOOST_CHECK((per_layer == std::vector<double>{16, 16.0 * double(visits),
                                                          16.0 * double(visits), 16}));
            if (mode == Recompute::none) {
              plain = gradients_of(*model);
              loads = counted;
            } else {
              check_named_same_bits(gradients_of(*model), plain);
              BOOST_CHECK(counted == loads);
            }
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(peak_memory_falls_and_grows_by_one_activation_per_visit) {  // CASE 41
  ModelConfig config = tiny_config(2);
  const int64_t sequences = 8, seq_len = 64;
  const auto peak = [&](int64_t visits, Recompute mode) {
    ModelConfig looped = config;
    looped.loop.visits = visits;
    const auto model = make_model(looped, DType::f32);
    model->set_recompute(mode);
    const ModelInput input = random_batch(sequences, seq_len, 52).input();
    run_backward(*model, input);  // gradient buffers exist, caches are warm
    allocator().reset_peak();
    const size_t before = allocator().stats().live_bytes;
    run_backward(*model, input);
    return double(allocator().stats().peak_live_bytes - before);
  };
  const double none = peak(2, Recompute::none), moe = peak(2, Recompute::moe),
               block = peak(2, Recompute::block);
  BOOST_TEST_MESSAGE("peak bytes: none " << none << ", moe " << moe << ", block " << block);
  BOOST_CHECK_LT(moe, 0.8 * none);
  BOOST_CHECK_LT(block, 0.5 * none);
  const double activation = double(sequences * seq_len * config.hidden_size * 4);
  const double growth = peak(4, Recompute::block) - block;  // 4 more steps
  BOOST_TEST_MESSAGE("4 more steps add " << growth / activation << " activations");
  BOOST_CHECK_LT(growth, 4 * 1.25 * activation + 65536);
}

BOOST_AUTO_TEST_SUITE_END()
