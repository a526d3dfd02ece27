// What a model's folder computes on given ids, in the terms in which transformers gives it.
#pragma once

#include <string>
#include <vector>

#include "apps/common/checkpoint.h"
#include "apps/common/model_folder.h"
#include "moe/generate.h"

namespace smelt::testing {

struct HfOutputs {
  Tensor logits;                // [B, S, V]
  double loss = 0, aux = 0;     // mean over the B (S - 1) next tokens; over the rows of all layers
  std::vector<int64_t> greedy;  // continuation of the prompt
};

/// @param ids  [B, S] i64;  @param prompt  [1, P] i64
inline HfOutputs hf_outputs(const std::string& folder, const Tensor& ids, const Tensor& prompt,
                            int64_t new_tokens, const dist::World& world) {
  const NoGrad no_grad;
  MoeTransformer model(read_model_json(folder).config, DType::f32, world);
  load_model(folder, model);
  const int64_t B = ids.dim(0), S = ids.dim(1);
  const auto to_i32 = [](const Tensor& x) {
    const auto wide = x.to_vector<int64_t>();
    return std::vector<int32_t>(wide.begin(), wide.end());
  };
  const std::vector<int32_t> tokens = to_i32(ids);
  std::vector<int32_t> targets(tokens.begin() + 1, tokens.end());
  targets.push_back(-1);
  for (int64_t b = 0; b < B; ++b) targets[size_t(b * S + S - 1)] = -1;
  const ModelInput input{
      Tensor::from(tokens), Tensor::from(targets),
      SequenceLayout::from_document_starts(B, S, std::vector<int32_t>(tokens.size(), 0))};
  HfOutputs out;
  RouterSums sums(model.config().num_experts);
  for (const double nats : model.token_losses(input, &sums).to(DType::f64).to_vector<double>())
    out.loss += nats / double(B * (S - 1));
  out.aux = sums.aux_loss();
  out.logits = model.logits(model.hidden(input)).data().view({B, S, -1});
  const auto texts =
      generate(model, {to_i32(prompt)}, {.max_new_tokens = new_tokens, .sampling = {}});
  out.greedy.assign(texts.front().begin(), texts.front().end());
  return out;
}

}  // namespace smelt::testing
