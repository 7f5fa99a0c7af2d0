// The one forward pass: embed, angles, blocks, final norm, head. Which ops run depends on the model and on the numbers
// of rows and logits, never on the values in a step.
#include <algorithm>

#include "base/check.h"
#include "model/model.h"
#include "model/partial_pass.h"

namespace ridge {
namespace {

int64_t row_floats(int64_t cols) { return (cols + 15) / 16 * 16; }

}  // namespace

Workspace::Workspace(const Model& model, Backend& backend, int max_tokens, int max_logits) {
  x = backend.allocate_f32(max_tokens, model.d_model);
  pending = backend.allocate_f32(max_tokens, model.d_model);
  normed = backend.allocate_f32(max_tokens, model.d_model);
  scratch_floats = model.scratch;
  for (size_t i = 0; i < scratch.size(); i++)
    if (scratch_floats[i] > 0) scratch[i] = backend.allocate(max_tokens * scratch_floats[i] * 4);
  for (const auto& rope : model.ropes) angles.push_back(backend.allocate_f32(max_tokens, 2 * rope->n_freqs()));
  gathered = backend.allocate_f32(max_logits, model.d_model);
  logits = backend.allocate_f32(max_logits, model.n_vocab);
}

Tensor Pass::scratch(int i, int64_t cols, int64_t rows_per_token, FormatId format) const {
  CHECK_LE(row_floats(cols) * rows_per_token, workspace_.scratch_floats[static_cast<size_t>(i)]);
  return {workspace_.scratch[static_cast<size_t>(i)], format, n_tokens() * rows_per_token, cols, row_floats(cols) * 4};
}

void Pass::narrow(Stream& stream) {
  if (!may_narrow_) return;
  may_narrow_ = false;
  n_rows_ = step_.n_logits();
  const Tensor kept = workspace_.gathered.slice_rows(0, n_rows_);
  if (n_rows_ > 0) run(GatherRows{.out = kept, .x = stream.x, .pending = stream.pending, .pending_scale = stream.pending_scale});
  stream = {.x = kept};
}

Tensor Pass::angles(int rope) const { return workspace_.angles[static_cast<size_t>(rope)].slice_rows(0, n_tokens()); }

namespace {

Stream enter(const Model& model, Pass& pass) {
  Stream stream{.x = pass.workspace().x.slice_rows(0, pass.n_tokens())};
  pass.run(Embed{.out = stream.x, .table = &model.embed, .scale = model.embed_scale});
  if (model.embed_positions.rows > 0) pass.run(Embed{.out = stream.x, .table = &model.embed_positions, .by_position = true, .add = true});
  for (size_t r = 0; r < model.ropes.size(); r++)
    pass.run(RopeAngles{.angles = pass.angles(static_cast<int>(r)), .rope = static_cast<int>(r), .n_freqs = model.ropes[r]->n_freqs()});
  return stream;
}

Stream run_blocks(const Model& model, Pass& pass, size_t n_blocks) {
  Stream stream = enter(model, pass);
  for (size_t b = 0; b < n_blocks; b++) model.blocks[b]->forward(pass, stream);
  return stream;
}

// All blocks, for logits alone: what the last one does row by row it does for their rows.
Stream run_blocks_for_logits(const Model& model, const Backend& backend, Pass& pass) {
  CHECK(!model.blocks.empty());
  Stream stream = run_blocks(model, pass, model.blocks.size() - 1);
  if (!backend.needs_all_rows()) pass.let_narrow();
  model.blocks.back()->forward(pass, stream);
  return stream;
}

}  // namespace

Stream forward_blocks(const Model& model, Backend& backend, const Step& step, Workspace& workspace, const std::vector<KvRef>& kv, size_t n_blocks) {
  backend.begin(step);
  Pass pass(backend, step, workspace, kv);
  const Stream stream = run_blocks(model, pass, n_blocks);
  backend.end();
  return stream;
}

void forward_block(const Model& model, Backend& backend, const Step& step, Workspace& workspace, const std::vector<KvRef>& kv, PartialPass& partial) {
  CHECK_LE(step.n_tokens(), workspace.x.rows);
  CHECK_LT(partial.n_done, model.blocks.size());
  backend.begin(step);
  Pass pass(backend, step, workspace, kv);
  if (partial.n_done == 0) partial.stream = enter(model, pass);
  model.blocks[partial.n_done++]->forward(pass, partial.stream);
  backend.end();
}

namespace {

void name_ops(const Model& model, Backend& backend, const Step& step, Workspace& workspace, const std::vector<KvRef>& kv) {
  const int n_tokens = step.n_tokens(), n_logits = step.n_logits();
  CHECK_LE(n_tokens, workspace.x.rows);
  CHECK_LE(n_logits, workspace.logits.rows);
  CHECK_EQ(kv.size(), model.kv_specs.size());
  backend.begin(step);
  Pass pass(backend, step, workspace, kv);
  Stream stream = run_blocks_for_logits(model, backend, pass);

  if (n_logits > 0) {
    const Tensor normed = workspace.normed.slice_rows(0, n_logits), logits = workspace.logits.slice_rows(0, n_logits);
    if (const Tensor gathered = workspace.gathered.slice_rows(0, n_logits); n_logits < n_tokens && stream.x.data != gathered.data) {
      pass.run(GatherRows{.out = gathered, .x = stream.x, .pending = stream.pending, .pending_scale = stream.pending_scale});
      stream = {.x = gathered};
    }
    pass.run(AddNorm{.out = normed, .x = stream.x, .pending = stream.pending, .pending_scale = stream.pending_scale, .weight = model.final_norm, .bias = model.final_norm_bias, .eps = model.final_norm_eps,
                     .weight_offset = model.final_norm_offset, .kind = model.final_norm_kind});
    pass.run(Matmul{.out = {logits}, .x = normed, .w = {model.head}, .bias = {model.head_bias}});
    if (model.logit_scale != 1.0f || model.logit_softcap > 0) pass.run(ScaleCap{.x = logits, .scale = model.logit_scale, .cap = model.logit_softcap});
  }
}

}  // namespace

void forward(const Model& model, Backend& backend, const Step& step, Workspace& workspace, const std::vector<KvRef>& kv) {
  name_ops(model, backend, step, workspace, kv);
  backend.end();
}

void submit_forward(const Model& model, Backend& backend, const Step& step, Workspace& workspace, const std::vector<KvRef>& kv) {
  name_ops(model, backend, step, workspace, kv);
  backend.submit();
}

int Model::rope_class(int n_known) const {
  if (restarts_every_token) return n_known;
  int rope_class = 0;
  for (const auto& rope : ropes) rope_class = std::max(rope_class, rope->class_of(n_known));
  return rope_class;
}

void Model::write_rope_row(Step& step, int row, int rope_class) const {
  for (size_t r = 0; r < ropes.size(); r++) {
    float* out = step.rope_freqs(static_cast<int>(r), row);
    out[step.limits().n_freqs] = ropes[r]->frequencies(out, rope_class);
  }
}

int Model::n_freqs() const {
  int n = 0;
  for (const auto& rope : ropes) n = std::max(n, rope->n_freqs());
  return n;
}

FormatId Model::activations() const {
  for (const auto& w : weights)
    if (w->arithmetic.x != FormatId::f32) return w->arithmetic.x;
  return FormatId::f32;
}

int64_t Model::streamed_bytes() const {
  int64_t n = 0;
  for (const ComponentSize& c : sizes)
    if (c.streamed) n += static_cast<int64_t>(static_cast<double>(c.bytes) * c.active);
  return n;
}

}  // namespace ridge
