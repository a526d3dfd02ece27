#include "apps/common/config_schema.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>
#include <utility>

namespace smelt {
namespace {

constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
constexpr double kAnyNumber = std::numeric_limits<double>::max();

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::vector<std::string> split_commas(const std::string& text) {
  std::vector<std::string> parts;
  if (trimmed(text).empty()) return parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) parts.push_back(trimmed(part));
  if (trimmed(text).back() == ',') parts.emplace_back();
  return parts;
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// A path or word that survives an INI file: '#' would begin a comment there.
bool fits_ini(const std::string& text) {
  return text.find_first_of("#\n\r") == std::string::npos && trimmed(text) == text;
}

bool parse_sources(const std::string& text, std::vector<DataSource>* out) {
  for (const std::string& part : split_commas(text)) {
    DataSource source;
    const size_t equals = part.find('=');
    if (equals == std::string::npos) return false;
    source.domain = trimmed(part.substr(0, equals));
    source.prefix = trimmed(part.substr(equals + 1));
    const size_t colon = source.prefix.find(':');
    if (colon != std::string::npos) {
      if (!parse_number(source.prefix.substr(colon + 1), &source.weight) || source.weight <= 0)
        return false;
      source.prefix.resize(colon);
    }
    const bool name_ok = !source.domain.empty() &&
                         std::all_of(source.domain.begin(), source.domain.end(), [](char c) {
                           return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                                  std::strchr("_-.", c) != nullptr;
                         });
    if (!name_ok || source.prefix.empty() || !fits_ini(source.prefix)) return false;
    out->push_back(source);
  }
  return true;
}

std::string sources_text(const std::vector<DataSource>& sources) {
  std::string text;
  for (const DataSource& source : sources) {
    if (!text.empty()) text += ", ";
    text += source.domain + "=" + source.prefix;
    if (source.weight != 1) text += ":" + number_text(source.weight);
  }
  return text;
}

// The functions below make one row of the table each. field is a function from RunConfig& to the
// member that the row stands for.
ConfigKey row(const char* section, const char* key, const char* type, const char* unit,
              std::string allowed, const char* help, std::vector<std::string> synonyms) {
  ConfigKey made;
  made.section = section;
  made.key = key;
  made.type = type;
  made.unit = unit;
  made.allowed = std::move(allowed);
  made.help = help;
  made.synonyms = std::move(synonyms);
  return made;
}

// The member of a configuration that is only read.
template <typename Field>
const auto& read(Field field, const RunConfig& config) {
  return field(const_cast<RunConfig&>(config));
}

template <typename Field>
ConfigKey integer(const char* section, const char* key, Field field, int64_t low, int64_t high,
                  const char* unit, const char* help, std::vector<std::string> synonyms = {}) {
  const std::string allowed =
      high == kAny ? "a whole number of at least " + std::to_string(low)
                   : "a whole number from " + std::to_string(low) + " to " + std::to_string(high);
  ConfigKey made = row(section, key, "integer", unit, allowed, help, std::move(synonyms));
  made.get = [field](const RunConfig& config) { return std::to_string(read(field, config)); };
  made.set = [field, low, high](RunConfig& config, const std::string& text) {
    int64_t value = 0;
    if (!parse_integer(text, &value) || value < low || value > high) return false;
    field(config) = value;
    return true;
  };
  return made;
}

// How the ends of a number's range count.
enum class Ends { closed, open_low, open_high, open };

template <typename Field>
ConfigKey number(const char* section, const char* key, Field field, double low, double high,
                 Ends ends, const char* unit, const char* help,
                 std::vector<std::string> synonyms = {}) {
  const bool low_open = ends == Ends::open_low || ends == Ends::open;
  const bool high_open = ends == Ends::open_high || ends == Ends::open;
  std::string allowed =
      std::string("a number ") + (low_open ? "above " : "of at least ") + number_text(low);
  if (high != kAnyNumber)
    allowed += std::string(high_open ? " and below " : " and at most ") + number_text(high);
  ConfigKey made = row(section, key, "number", unit, allowed, help, std::move(synonyms));
  made.get = [field](const RunConfig& config) { return number_text(read(field, config)); };
  made.set = [=](RunConfig& config, const std::string& text) {
    double value = 0;
    if (!parse_number(text, &value)) return false;
    if (value < low || value > high) return false;
    if ((low_open && value == low) || (high_open && value == high)) return false;
    field(config) = value;
    return true;
  };
  return made;
}

template <typename Field>
ConfigKey boolean(const char* section, const char* key, Field field, const char* help,
                  std::vector<std::string> synonyms = {}) {
  ConfigKey made = row(section, key, "true|false", "", "true or false", help, std::move(synonyms));
  made.get = [field](const RunConfig& config) {
    return std::string(read(field, config) ? "true" : "false");
  };
  made.set = [field](RunConfig& config, const std::string& text) {
    const std::string word = lower(text);
    const bool yes = word == "true" || word == "yes" || word == "on" || word == "1";
    const bool no = word == "false" || word == "no" || word == "off" || word == "0";
    if (!yes && !no) return false;
    field(config) = yes;
    return true;
  };
  return made;
}

template <typename Field, typename Value>
ConfigKey word(const char* section, const char* key, Field field, std::vector<Value> values,
               const char* help, std::vector<std::string> synonyms = {}) {
  std::string allowed;
  for (const Value value : values) {
    if (!allowed.empty()) allowed += "|";
    allowed += to_text(value);
  }
  ConfigKey made = row(section, key, "word", "", allowed, help, std::move(synonyms));
  made.get = [field](const RunConfig& config) { return std::string(to_text(read(field, config))); };
  made.set = [field, values](RunConfig& config, const std::string& text) {
    for (const Value value : values) {
      if (text != to_text(value)) continue;
      field(config) = value;
      return true;
    }
    return false;
  };
  return made;
}

template <typename Field>
ConfigKey text(const char* section, const char* key, Field field, bool may_be_empty,
               const char* unit, const char* help, std::vector<std::string> synonyms = {}) {
  ConfigKey made = row(section, key, "text", unit,
                       may_be_empty ? "a path without '#'" : "a path, not empty and without '#'",
                       help, std::move(synonyms));
  made.get = [field](const RunConfig& config) { return read(field, config); };
  made.set = [field, may_be_empty](RunConfig& config, const std::string& value) {
    if (!fits_ini(value) || (value.empty() && !may_be_empty)) return false;
    field(config) = value;
    return true;
  };
  return made;
}

template <typename Field>
ConfigKey token_list(const char* section, const char* key, Field field, const char* help) {
  ConfigKey made = row(section, key, "list", "tokens",
                       "whole numbers of at least 1, separated by commas", help, {});
  made.get = [field](const RunConfig& config) {
    std::string joined;
    for (const int64_t value : read(field, config))
      joined += (joined.empty() ? "" : ", ") + std::to_string(value);
    return joined;
  };
  made.set = [field](RunConfig& config, const std::string& text_value) {
    std::vector<int64_t> values;
    for (const std::string& part : split_commas(text_value)) {
      int64_t value = 0;
      if (!parse_integer(part, &value) || value < 1) return false;
      values.push_back(value);
    }
    field(config) = values;
    return true;
  };
  return made;
}

template <typename Field>
ConfigKey source_list(const char* section, const char* key, Field field, const char* help) {
  ConfigKey made = row(section, key, "list", "",
                       "domain=prefix[:weight] separated by commas, with "
                       "weights above 0",
                       help, {});
  made.repeats = true;
  made.get = [field](const RunConfig& config) { return sources_text(read(field, config)); };
  made.set = [field](RunConfig& config, const std::string& value) {
    std::vector<DataSource> sources;
    if (!parse_sources(value, &sources)) return false;
    field(config) = sources;
    return true;
  };
  return made;
}

// A row's field; the row's functions read and write through it.
#define FIELD(member) \
  [](RunConfig & c) -> auto& { return c.member; }

std::vector<ConfigKey> make_schema() {
  constexpr int64_t kWide = 1 << 20;  // bound on widths, heads and the like
  return {
      integer("model", "hidden_size", FIELD(model.hidden_size), 1, kWide, "features",
              "width of the residual stream", {"d_model", "dim", "n_embd", "width"}),
      integer("model", "num_layers", FIELD(model.num_layers), 1, 65536, "layers",
              "physical layers, each a set of weights",
              {"n_layers", "n_layer", "layers", "depth", "num_hidden_layers"}),
      integer("model", "num_heads", FIELD(model.num_heads), 1, kWide, "heads",
              "query heads of attention", {"n_heads", "n_head", "num_attention_heads"}),
      integer("model", "num_kv_heads", FIELD(model.num_kv_heads), 1, kWide, "heads",
              "key and value heads; divides num_heads", {"n_kv_heads", "num_key_value_heads"}),
      integer("model", "head_dim", FIELD(model.head_dim), 2, kWide, "features",
              "width of one head; even, for rotary positions", {"head_size"}),
      integer("model", "num_experts", FIELD(model.num_experts), 1, kWide, "experts",
              "routed experts of each layer", {"n_experts"}),
      integer("model", "top_k", FIELD(model.top_k), 1, 1024, "experts",
              "experts that each token uses; at most num_experts",
              {"topk", "k", "num_experts_per_tok"}),
      integer("model", "expert_hidden_size", FIELD(model.expert_hidden_size), 1, kWide, "features",
              "inner width of one expert",
              {"moe_intermediate_size", "expert_size", "ffn_hidden_size"}),
      integer("model", "shared_expert_hidden_size", FIELD(model.shared_expert_hidden_size), 0,
              kWide, "features", "inner width of the expert that every token uses; 0: none",
              {"shared_expert_intermediate_size"}),
      integer("model", "vocab_size", FIELD(model.vocab_size), 2, 1 << 24, "tokens",
              "entries of the vocabulary; 257 is the byte tokenizer", {"n_vocab", "vocabulary"}),
      integer("model", "max_seq_len", FIELD(model.max_seq_len), 1, 1 << 24, "tokens",
              "longest sequence the model is made for",
              {"max_position_embeddings", "context_length"}),
      number("model", "rope_theta", FIELD(model.rope_theta), 1, 1e12, Ends::open_low, "",
             "base of the rotary frequencies", {"rope_base"}),
      number("model", "norm_eps", FIELD(model.norm_eps), 0, 1, Ends::open, "",
             "added to the mean square in RMSNorm", {"rms_norm_eps"}),
      word("model", "qk_norm", FIELD(model.qk_norm),
           std::vector{QkNorm::head, QkNorm::none, QkNorm::projection},
           "RMSNorm of queries and keys: of each head, none, or of the whole projection (OLMoE)"),
      number("model", "clip_qkv", FIELD(model.clip_qkv), 0, 1e9, Ends::closed, "",
             "bound on the size of queries, keys and values; 0: none"),
      boolean("model", "norm_topk", FIELD(model.norm_topk),
              "scale the chosen experts' weights to sum to 1", {"norm_topk_prob"}),
      boolean("model", "tie_embeddings", FIELD(model.tie_embeddings),
              "output head shares the embedding's weights", {"tie_word_embeddings"}),
      number("model", "init_std", FIELD(model.init_std), 0, 10, Ends::open_low, "",
             "standard deviation of initial weights", {"initializer_range"}),

      integer("loop", "start", FIELD(model.loop.start), -1, 65535, "layer",
              "first layer of the looped span, counted from 0; -1: centred"),
      integer("loop", "layers", FIELD(model.loop.layers), 0, 65536, "layers",
              "layers in the looped span; 0: no loop", {"span"}),
      integer("loop", "visits", FIELD(model.loop.visits), 1, 1024, "visits",
              "how often the span is executed", {"loops", "repeats", "recurrence"}),
      number("loop", "scale", FIELD(model.loop.scale), 0, 1e6, Ends::closed, "",
             "factor on residual updates inside the span; 0: 1 / visits", {"residual_scale"}),
      word("loop", "order", FIELD(model.loop.order), std::vector{LoopOrder::span, LoopOrder::layer},
           "repeat the whole span, or each layer in place"),
      word("loop", "kv", FIELD(model.loop.kv), std::vector{LoopKv::own, LoopKv::first},
           "each visit stores its keys and values, or later visits reuse those of the first"),

      word("moe", "balance", FIELD(moe.balance),
           std::vector{Balance::aux, Balance::bias, Balance::none},
           "how expert loads are kept even: loss, selection bias, or not at all"),
      word("moe", "aux_scope", FIELD(moe.aux_scope),
           std::vector{AuxScope::sequence, AuxScope::batch},
           "tokens over which the balancing loss is formed"),
      number("moe", "aux_loss_coef", FIELD(moe.aux_loss_coef), 0, 1e6, Ends::closed, "",
             "weight of the balancing loss, with balance = aux", {"router_aux_loss_coef"}),
      number("moe", "z_loss_coef", FIELD(moe.z_loss_coef), 0, 1e6, Ends::closed, "",
             "weight of the z-loss on router logits; 0: none"),
      number("moe", "bias_update_rate", FIELD(moe.bias_update_rate), 0, 1, Ends::closed, "",
             "step of the selection bias, with balance = bias"),

      integer("train", "seq_len", FIELD(train.seq_len), 1, 1 << 24, "tokens",
              "target tokens of one sequence", {"sequence_length", "block_size"}),
      integer("train", "micro_batch", FIELD(train.micro_batch), 1, 1 << 20, "sequences",
              "sequences in one pass of one rank", {"micro_batch_size", "device_batch_size"}),
      integer("train", "global_batch", FIELD(train.global_batch), 1, 1 << 24, "sequences",
              "sequences of one optimizer step, over all ranks",
              {"global_batch_size", "batch_size", "batch"}),
      integer("train", "tokens", FIELD(train.tokens), 1, int64_t{1} << 60, "tokens",
              "length of the run; rounded up to whole steps", {"max_tokens", "total_tokens"}),
      word("train", "dtype", FIELD(train.dtype), std::vector{DType::f32, DType::bf16},
           "compute type; parameters and optimizer state are f32", {"precision"}),
      boolean("train", "document_mask", FIELD(train.document_mask),
              "attention stays inside a document"),
      number("train", "grad_clip", FIELD(train.grad_clip), 0, 1e9, Ends::closed, "",
             "bound on the global gradient norm; 0: off", {"clip", "max_grad_norm", "clip_grad"}),
      word("train", "recompute", FIELD(train.recompute),
           std::vector{Recompute::none, Recompute::moe, Recompute::block},
           "what backward computes again instead of keeping", {"checkpointing"}),
      integer("train", "seed", FIELD(train.seed), 0, kAny, "",
              "seed of initial weights and data order"),

      number("optim", "lr", FIELD(optim.lr), 0, 1e3, Ends::open_low, "",
             "peak learning rate of AdamW", {"learning_rate", "max_lr", "peak_lr"}),
      number("optim", "min_lr_ratio", FIELD(optim.min_lr_ratio), 0, 1, Ends::closed, "",
             "last learning rate, as a share of lr", {"min_lr", "final_lr_ratio"}),
      integer("optim", "warmup_tokens", FIELD(optim.warmup_tokens), -1, int64_t{1} << 60, "tokens",
              "linear warm-up; -1: 2 % of train.tokens", {"warmup", "warmup_steps"}),
      word("optim", "schedule", FIELD(optim.schedule),
           std::vector{Schedule::wsd, Schedule::cosine, Schedule::constant},
           "learning rate after the warm-up; wsd: stable, then linear decay",
           {"lr_schedule", "scheduler"}),
      integer("optim", "decay_tokens", FIELD(optim.decay_tokens), -1, int64_t{1} << 60, "tokens",
              "length of the decay of wsd; -1: 20 % of train.tokens", {"decay", "cooldown_tokens"}),
      token_list("optim", "branch_tokens", FIELD(optim.branch_tokens),
                 "tokens at which extra decay branches of wsd end, ascending; empty: none"),
      number("optim", "beta1", FIELD(optim.beta1), 0, 1, Ends::open_high, "",
             "decay of the first moment", {"adam_beta1"}),
      number("optim", "beta2", FIELD(optim.beta2), 0, 1, Ends::open_high, "",
             "decay of the second moment", {"adam_beta2"}),
      number("optim", "eps", FIELD(optim.eps), 0, 1, Ends::open, "",
             "added to the root of the second moment", {"epsilon", "adam_eps"}),
      number("optim", "weight_decay", FIELD(optim.weight_decay), 0, 1e3, Ends::closed, "",
             "decoupled decay of matrices", {"wd"}),
      boolean("optim", "decay_all", FIELD(optim.decay_all),
              "weight decay on norms and embeddings too"),

      source_list("data", "train", FIELD(data.train),
                  "token files to train on, domain=prefix[:weight], ..."),
      source_list("data", "valid", FIELD(data.valid),
                  "token files to evaluate on, domain=prefix, ..."),
      text("data", "tokenizer", FIELD(data.tokenizer), true, "FILE",
           "tokenizer.json of these files; empty: the one beside the first training file, if any"),

      integer("dist", "expert_parallel", FIELD(dist.expert_parallel), 1, 65536, "ranks",
              "ranks that share the experts of a layer; divides ranks and num_experts",
              {"ep", "ep_size", "expert_parallel_size"}),

      text("run", "dir", FIELD(run.dir), false, "DIR", "folder of the run",
           {"output_dir", "out_dir", "folder"}),
      text("run", "init", FIELD(run.init), true, "DIR",
           "checkpoint or Hugging Face folder whose weights a new run begins with; its sizes must "
           "be those of [model]; empty: random weights",
           {"init_from", "from_pretrained"}),
      integer("run", "checkpoint_every", FIELD(run.checkpoint_every), 0, kAny, "steps",
              "distance of checkpoints; 0: only at the end", {"save_every"}),
      integer("run", "keep", FIELD(run.keep), 0, kAny, "checkpoints",
              "how many of the latest to keep; 0: all", {"keep_last"}),
      integer("run", "eval_every", FIELD(run.eval_every), 0, kAny, "steps",
              "distance of evaluations; 0: only at the end", {"eval_interval"}),
      integer("run", "eval_tokens", FIELD(run.eval_tokens), 0, kAny, "tokens",
              "tokens of an evaluation while training, shared equally by the domains; 0: all"),
      integer("run", "log_every", FIELD(run.log_every), 1, kAny, "steps",
              "distance of lines in metrics.jsonl", {"log_interval"}),
      boolean("run", "tensorboard", FIELD(run.tensorboard),
              "write TensorBoard event files to tensorboard/ as well"),
      word("run", "device", FIELD(run.device), std::vector{DeviceKind::cpu, DeviceKind::cuda},
           "where the model runs"),
      integer("run", "time_limit", FIELD(run.time_limit), 0, kAny, "seconds",
              "save a checkpoint and stop after this; 0: no limit", {"max_time"}),
      number("run", "peak_flops", FIELD(run.peak_flops), 0, 1e24, Ends::closed, "FLOP/s",
             "best rate of one rank, e.g. the matrix rate of smelt-bench, which mfu in "
             "metrics.jsonl refers to; 0: unknown, mfu is null"),
  };
}

#undef FIELD

// Levenshtein distance; case does not count.
size_t edits(const std::string& a_text, const std::string& b_text) {
  const std::string a = lower(a_text);
  const std::string b = lower(b_text);
  std::vector<size_t> row_above(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row_above[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    std::vector<size_t> current(b.size() + 1, i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = row_above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      current[j] = std::min({change, row_above[j] + 1, current[j - 1] + 1});
    }
    row_above = current;
  }
  return row_above[b.size()];
}

// Edits between what was written and a name. A beginning of the name, such as hidden for
// hidden_size, counts as near: leaving the rest out is one slip.
size_t distance(const std::string& written, const std::string& name) {
  const bool beginning = written.size() >= 3 && name.size() > written.size() &&
                         lower(name).compare(0, written.size(), lower(written)) == 0;
  return beginning ? std::min<size_t>(2, edits(written, name)) : edits(written, name);
}

size_t close_enough(const std::string& word) { return std::max<size_t>(2, word.size() / 3); }

}  // namespace

const std::vector<ConfigKey>& config_schema() {
  static const std::vector<ConfigKey> schema = make_schema();
  return schema;
}

const std::vector<ConfigSection>& config_sections() {
  static const std::vector<ConfigSection> sections = {
      {"model", "the transformer"},        {"loop", "layers that run more than once"},
      {"moe", "load balancing"},           {"train", "batches, length and precision"},
      {"optim", "AdamW and its schedule"}, {"data", "token files"},
      {"dist", "layout of ranks"},         {"run", "folder, intervals and device"},
  };
  return sections;
}

const ConfigKey* find_config_key(const std::string& name) {
  for (const ConfigKey& key : config_schema())
    if (key.name() == name) return &key;
  return nullptr;
}

std::string config_markdown() {
  std::ostringstream out;
  out << "# Configuration keys\n\n"
         "Made from the table in `apps/common/config_schema.cpp`. In a file a key stands in its "
         "section;\non the command line it is `--section.key=value`. The command line leads over "
         "the "
         "file, the file\nover the default.\n";
  const RunConfig defaults;
  for (const ConfigSection& section : config_sections()) {
    out << "\n## [" << section.name << "]: " << section.title << "\n\n"
        << "| key | default | unit | allowed | meaning |\n|---|---|---|---|---|\n";
    for (const ConfigKey& key : config_schema()) {
      if (key.section != section.name) continue;
      std::string allowed = key.allowed;
      for (size_t at = 0; (at = allowed.find('|', at)) != std::string::npos; at += 2)
        allowed.insert(at, "\\");
      const std::string value = key.get(defaults);
      out << "| `" << key.key << "` | "
          << (value.empty() ? value : std::string("`").append(value).append("`")) << " | "
          << key.unit << " | " << allowed << " | " << key.help << " |\n";
    }
  }
  return out.str();
}

std::string nearest_name(const std::string& word_text, const std::vector<std::string>& names) {
  std::string best;
  size_t best_edits = close_enough(word_text) + 1;
  for (const std::string& name : names) {
    const size_t count = distance(word_text, name);
    if (count < best_edits) {
      best = name;
      best_edits = count;
    }
  }
  return best;
}

std::string config_key_hint(const std::string& name) {
  const size_t dot = name.find('.');
  const std::string section = dot == std::string::npos ? "" : name.substr(0, dot);
  const std::string word_text = dot == std::string::npos ? name : name.substr(dot + 1);
  // Fewest edits wins; among equals a key of the section that was written, then a true name over a
  // synonym. The section only decides between equals: right key, wrong section is a common slip.
  const ConfigKey* best = nullptr;
  size_t best_cost = SIZE_MAX;
  for (const ConfigKey& key : config_schema()) {
    const size_t other_section = key.section == section ? 0 : 1;
    const auto consider = [&](const std::string& candidate, size_t synonym) {
      const size_t count = distance(word_text, candidate);
      const size_t cost = 4 * count + 2 * other_section + synonym;
      if (count > close_enough(word_text) || cost >= best_cost) return;
      best = &key;
      best_cost = cost;
    };
    consider(key.key, 0);
    for (const std::string& synonym : key.synonyms) consider(synonym, 1);
  }
  if (best == nullptr) return "";
  return "; did you mean [" + best->section + "] " + best->key + "?";
}

bool parse_integer(const std::string& text_value, int64_t* value) {
  const char* end = text_value.data() + text_value.size();
  const auto result = std::from_chars(text_value.data(), end, *value);
  return result.ec == std::errc() && result.ptr == end && !text_value.empty();
}

bool parse_number(const std::string& text_value, double* value) {
  const char* end = text_value.data() + text_value.size();
  const auto result = std::from_chars(text_value.data(), end, *value);
  return result.ec == std::errc() && result.ptr == end && std::isfinite(*value);
}

std::string number_text(double value) {
  char buffer[32];
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, value);
  return std::string(buffer, result.ptr);
}

}  // namespace smelt
