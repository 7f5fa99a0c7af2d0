// A Model: what an architecture file constructs and the one decoder runs. It holds modules wired to prepared weights; it computes nothing itself.
// Tensor names are Hugging Face's. A family is one file in architectures/, found by the config's model_type.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "files/checkpoint.h"
#include "model/rope.h"

namespace ridge {

class Pass;

// Scratch buffers of a step, which modules use by number. Whoever calls a module keeps what it needs over the call in buffers the module does not touch:
//   0 to 3   inside attention (q, k, v, what it saw) and feed-forward (gate, up)      2   what a part returned before the norm that follows it
//   4 to 11  routing of experts, recurrent mixers, index of sparse attention        12   attention's output gate        13   the second of two parts side by side, hyper factors
//   14, 15   what is kept from block to block: Gemma 4's layer inputs, an index's selection, hyper streams, LongCat's mixture
inline constexpr int kScratchBuffers = 16;

// The residual stream. `pending` is the last branch's output, not yet added, so that add and norm are one op.
struct Stream {
  Tensor x, pending;                         // [T, d_model]; pending empty at first
  float pending_scale = 1.0f;
};

class Module {
 public:
  virtual ~Module() = default;
  virtual void forward(Pass& pass, Tensor out, Tensor x) const = 0;
  virtual bool is_row_wise() const { return false; }         // a row of `out` depends on that row of x alone, and on nothing that was kept for a token
};

class Block {
 public:
  virtual ~Block() = default;
  virtual void forward(Pass& pass, Stream& stream) const = 0;
};

struct ModelOptions {
  FormatId activations = FormatId::unknown;  // for quantized weights (plain number formats always use f32): i8, i16, f32, or unknown: i16 for small models, else i8
  FormatId kv_format = FormatId::f16;        // f32, f16, bf16 or fp8_e4m3
  bool rope_dynamic_exact = false;           // dynamic NTK follows every token instead of a length class
  bool index_with_hindsight = false;         // sparse attention breaks ties as one pass over the whole sequence would, so every token recomputes the sequence
  std::function<void(double share, const std::string& what)> progress;     // while loading; may be empty
};

// Bytes and parameters by component, for `ridge inspect` and the roofline.
struct ComponentSize {
  std::string component;                     // "embedding", "attention", "mlp", "experts", "norms", "head"
  int64_t n_params = 0, bytes = 0;           // bytes as prepared
  bool streamed = true;                      // read once per decoded token (the embedding table is not)
  double active = 1.0;                       // share of it that one token touches (experts: top_k of n)
  int64_t n_rows = 0;                        // of a table: a token reads one of them
  int64_t n_shared = 0;                      // numbers that another component counts and this one reads too (a tied head)
};

struct Model {
  std::string family;                        // "llama"
  int n_vocab = 0, d_model = 0, n_layers = 0, max_context = 0;
  float embed_scale = 1.0f;
  Weight embed, embed_positions;             // embed_positions.rows == 0: none (GPT-2 has them)
  std::vector<std::unique_ptr<Block>> blocks;
  // Final norm and head.
  Tensor final_norm, final_norm_bias;
  float final_norm_eps = 0, final_norm_offset = 0;
  NormKind final_norm_kind = NormKind::rms;
  const Weight* head = nullptr;
  Tensor head_bias;
  float logit_scale = 1.0f, logit_softcap = 0;

  std::vector<std::unique_ptr<Rope>> ropes;  // RopeAngles::rope indexes this
  bool restarts_every_token = false;         // rope_class is the number of tokens
  std::vector<KvSpec> kv_specs;              // one per KV handle; modules hold the index
  std::array<int64_t, kScratchBuffers> scratch{};  // floats that a token needs of each scratch buffer
  std::vector<ComponentSize> sizes;
  std::vector<std::unique_ptr<Weight>> weights;    // owners of what modules point to
  std::vector<std::unique_ptr<std::byte[]>> gathered;    // rows of fused tensors that had to be brought together

  // The class of the rotary angles when n_known tokens of a sequence are known; when it changes, what was computed before is stale.
  int rope_class(int n_known) const;
  void write_rope_row(Step& step, int row, int rope_class) const;    // frequencies and factor of every rope for a class
  int n_freqs() const;                       // of the longest rope
  int64_t streamed_bytes() const;            // weights read per decoded token
  FormatId activations() const;              // in which quantized weights are multiplied, as the backend prepared them; f32 when there are none
};

// Reads config and weights, checks every shape, prepares the weights on the backend. Throws Error naming the key or tensor, the value, and what would work.
std::unique_ptr<Model> load_model(const Checkpoint& checkpoint, Backend& backend, const ModelOptions& options);

std::vector<std::string> known_families();

// Buffers for one step of at most max_tokens rows, made once.
struct Workspace {
  Workspace(const Model& model, Backend& backend, int max_tokens, int max_logits);
  Tensor x, pending, normed;                 // [max_tokens, d_model]
  std::array<std::byte*, kScratchBuffers> scratch{};
  std::array<int64_t, kScratchBuffers> scratch_floats{};              // of a token
  std::vector<Tensor> angles;                // one per rope: [max_tokens, 2 * n_freqs]
  Tensor gathered;                           // [max_logits, d_model]
  Tensor logits;                             // [max_logits, n_vocab]
};

// What modules see while a step runs.
class Pass {
 public:
  Pass(Backend& backend, const Step& step, Workspace& workspace, const std::vector<KvRef>& kv) : backend_(backend), step_(step), workspace_(workspace), kv_(kv) {}
  void run(const Op& op) { backend_.run(op); }
  int n_tokens() const { return n_rows_; }
  // From here on no row but those of logits is read: a block may keep them alone for what is left of it. Then n_tokens() is the number of logits.
  void let_narrow() { may_narrow_ = n_rows_ > step_.n_logits(); }
  void narrow(Stream& stream);
  Workspace& workspace() { return workspace_; }
  // [n_tokens * rows_per_token, cols] in scratch buffer i, rows 64-byte aligned; the model asked for it when it was constructed (Construction::scratch).
  Tensor scratch(int i, int64_t cols, int64_t rows_per_token = 1, FormatId format = FormatId::f32) const;
  Tensor angles(int rope) const;                              // [n_tokens, 2 * n_freqs]
  const KvRef& kv(int handle) const { return kv_[handle]; }

 private:
  Backend& backend_;
  const Step& step_;
  Workspace& workspace_;
  const std::vector<KvRef>& kv_;
  int n_rows_ = step_.n_tokens();
  bool may_narrow_ = false;
};

// The only forward: embeds, walks the blocks, and leaves logits of the step's logit rows in workspace.logits (rows [0, n_logits)).
void forward(const Model& model, Backend& backend, const Step& step, Workspace& workspace, const std::vector<KvRef>& kv);
// The same, but does not wait for it: Backend::wait().
void submit_forward(const Model& model, Backend& backend, const Step& step, Workspace& workspace, const std::vector<KvRef>& kv);
// Its first n_blocks blocks alone; the stream is in the workspace.
Stream forward_blocks(const Model& model, Backend& backend, const Step& step, Workspace& workspace, const std::vector<KvRef>& kv, size_t n_blocks);

}  // namespace ridge
