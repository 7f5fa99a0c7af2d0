// Attention on the tensor cores, run on the host: its kernels give each other's bits, those of a plain computation but for the rounding of queries and weights.
#include <gtest/gtest.h>

#include <cmath>

#include "cuda/kernels/attention/flash.h"
#include "emulated/matmul.h"
#include "formats/kv_fp8.h"

namespace ridge::cuda {
namespace {

constexpr int kHeads = 6, kKvHeads = 2, kPageSize = 32;

// Sequences with K and V of all their positions in pages of their own, in no order, and a step with the last rows of each.
struct Sequences {
  struct Of { int n_context, n_rows; };
  Sequences(FormatId format, int dim, std::vector<Of> all, std::mt19937& rng) : format_(format), dim_(dim) {
    int n_pages = 1;                                                           // page 0 is nobody's
    std::vector<int32_t> free;
    for (const Of& s : all) n_pages += (s.n_context + kPageSize - 1) / kPageSize;
    for (int i = 1; i < n_pages; ++i) free.push_back(i);
    std::shuffle(free.begin(), free.end(), rng);
    const bool fp8 = format == FormatId::fp8_e4m3;
    const int64_t plane_bytes = int64_t{kKvHeads} * kPageSize * (fp8 ? dim + 4 : 2 * dim);
    memory_ = std::make_unique<Aligned>(n_pages * 2 * plane_bytes);
    kv = {.base = memory_->at, .page_bytes = 2 * plane_bytes, .offsets = {0, plane_bytes}, .page_size = kPageSize};
    kv.planes[0] = kv.planes[1] = {.n_heads = kKvHeads, .head_dim = dim, .format = format};
    std::normal_distribution<float> normal;
    for (const Of& s : all) {
      StepSeq seq{.first_row = int(positions.size()), .n_rows = s.n_rows, .n_context = s.n_context, .first_page = {int(pages.size())}};
      const int index = int(seqs.size());
      seqs.push_back(seq);
      for (int i = 0; i < s.n_rows; ++i) positions.push_back(s.n_context - s.n_rows + i), seq_of.push_back(index);
      for (int p = 0; p < s.n_context; p += kPageSize) pages.push_back(free.back()), free.pop_back();
      for (int plane = 0; plane < 2; ++plane)
        for (int head = 0; head < kKvHeads; ++head)
          for (int p = 0; p < s.n_context; ++p) {
            std::vector<float> x(static_cast<size_t>(dim));
            for (float& v : x) v = normal(rng) * (fp8 && p % 7 == 0 ? 3.0f : 1.0f);
            put(plane, index, head, p, x);
          }
    }
    max_context = 0;
    for (const Of& s : all) max_context = std::max(max_context, s.n_context);
  }
  StepView step() const { return {.positions = positions.data(), .seq_of = seq_of.data(), .pages = pages.data(), .seqs = seqs.data()}; }
  int32_t page(int seq, int position) const { return pages[size_t(seqs[size_t(seq)].first_page[0] + position / kPageSize)]; }
  std::byte* entry(int plane, int seq, int head, int position, int bytes) const { return kv.plane(plane, page(seq, position)) + int64_t{head * kPageSize + position % kPageSize} * bytes; }
  void put(int plane, int seq, int head, int position, const std::vector<float>& x) {
    if (format_ == FormatId::fp8_e4m3) {
      uint8_t* const codes = reinterpret_cast<uint8_t*>(entry(plane, seq, head, position, dim_));
      reinterpret_cast<float*>(kv.scales(plane, page(seq, position)))[head * kPageSize + position % kPageSize] = encode_kv_fp8(codes, x.data(), dim_);
    } else {
      uint16_t* const to = reinterpret_cast<uint16_t*>(entry(plane, seq, head, position, 2 * dim_));
      for (int i = 0; i < dim_; ++i) to[i] = format_ == FormatId::f16 ? f32_to_f16(x[size_t(i)]) : f32_to_bf16(x[size_t(i)]);
    }
  }
  std::vector<float> get(int plane, int seq, int head, int position) const {
    std::vector<float> x(static_cast<size_t>(dim_));
    if (format_ == FormatId::fp8_e4m3) {
      const float scale = reinterpret_cast<const float*>(kv.scales(plane, page(seq, position)))[head * kPageSize + position % kPageSize];
      decode_kv_fp8(x.data(), reinterpret_cast<const uint8_t*>(entry(plane, seq, head, position, dim_)), scale, dim_);
    } else {
      const uint16_t* const from = reinterpret_cast<const uint16_t*>(entry(plane, seq, head, position, 2 * dim_));
      for (int i = 0; i < dim_; ++i) x[size_t(i)] = format_ == FormatId::f16 ? f16_to_f32(from[i]) : bf16_to_f32(from[i]);
    }
    return x;
  }
  KvRef kv;
  std::vector<int32_t> positions, seq_of, pages;
  std::vector<StepSeq> seqs;
  int max_context;

 private:
  FormatId format_;
  int dim_;
  std::unique_ptr<Aligned> memory_;
};

// One head of a row, in double.
std::vector<double> attended(const Sequences& all, const PagedAttention& op, int row, int head, const float* sinks) {
  const int seq = all.seq_of[size_t(row)], position = all.positions[size_t(row)], from = op.window > 0 ? std::max(0, position - op.window + 1) : 0, kv_head = head / (kHeads / kKvHeads);
  const float* const q = reinterpret_cast<const float*>(op.q.data + row * op.q.stride) + head * op.head_dim;
  std::vector<double> scores, out(size_t(op.head_dim), 0.0);
  double top = sinks ? double(sinks[head]) : -1e30, sum = 0;
  for (int p = from; p <= position; ++p) {
    const std::vector<float> key = all.get(0, seq, kv_head, p);
    double s = 0;
    for (int i = 0; i < op.head_dim; ++i) s += double(q[i]) * double(key[size_t(i)]);
    s *= double(op.scale);
    if (op.softcap > 0) s = double(op.softcap) * std::tanh(s / double(op.softcap));
    scores.push_back(s), top = std::max(top, s);
  }
  if (sinks) sum = std::exp(double(sinks[head]) - top);
  for (int p = from; p <= position; ++p) {
    const double weight = std::exp(scores[size_t(p - from)] - top);
    const std::vector<float> value = all.get(1, seq, kv_head, p);
    sum += weight;
    for (int i = 0; i < op.head_dim; ++i) out[size_t(i)] += weight * double(value[size_t(i)]);
  }
  for (double& v : out) v /= sum;
  return out;
}

struct Form { const char* name; FormatId format; int dim; };
PagedAttention attention_of(const Form& form, const Tensor& out, const Tensor& q, const KvRef& kv) {
  return {.out = out, .q = q, .kv = kv, .n_heads = kHeads, .n_kv_heads = kKvHeads, .head_dim = form.dim, .v_dim = form.dim, .scale = 1 / std::sqrt(float(form.dim))};
}
RopeStore rope_of(const Form& form, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& angles, const KvRef& kv) {
  return {.q = q, .k = k, .v = v, .angles = angles, .n_heads = kHeads, .n_kv_heads = kKvHeads, .head_dim = form.dim, .v_dim = form.dim, .n_rot = form.dim, .kv = kv};
}
Rows copy_of(Rows& x) {
  Rows copy(x.tensor.rows, x.tensor.cols);
  std::memcpy(copy.row(0), x.row(0), size_t(x.memory.n));
  return copy;
}

// By the kernels for few rows and for a batch, and by that for prompts where there are many.
void expect_bits(const Form& form, bool bounded, std::vector<Sequences::Of> of, std::mt19937& rng) {
  const std::string what = std::string(form.name) + (bounded ? ", bounded" : "");
  const Sequences all(form.format, form.dim, std::move(of), rng);
  const int n = int(all.positions.size()), width = kHeads * form.dim;
  Rows q = random_rows(n, width, rng), first(n, width), sinks = random_rows(1, kHeads, rng);
  PagedAttention op = attention_of(form, first.tensor, q.tensor, all.kv);
  if (bounded) op.window = 150, op.softcap = 3, op.sinks = sinks.tensor;          // a cap is above most scores
  ASSERT_TRUE(flash_supports(op));
  Machine machine;
  machine.launch.step = all.step();
  machine.launch.max_context = all.max_context;
  machine.launch.n_few_rows = n;
  std::vector<float> scratch(size_t(flash_scratch_needed(op, machine.launch) / 4));
  machine.launch.attention_scratch = scratch.data();

  machine.launch.compute_capability = 80;                                          // no kernel for prompts
  flash_attention(op, {}, machine.launch);
  machine.launch.compute_capability = 90;
  for (int row = 0; row < n; ++row)
    for (int head = row % 2; head < kHeads; head += 2) {
      const std::vector<double> wanted = attended(all, op, row, head, bounded ? sinks.row(0) : nullptr);
      for (int i = 0; i < form.dim; ++i)
        ASSERT_NEAR(first.row(row)[head * form.dim + i], wanted[size_t(i)], form.format == FormatId::fp8_e4m3 ? 0.05 : 0.03) << what << ", row " << row << ", head " << head << ", number " << i;
    }
  const auto expect_as_first = [&](const std::string& how, const auto& run) {
    Rows out(n, width);
    op.out = out.tensor;
    run();
    for (int i = 0; i < n * width; ++i) ASSERT_EQ(out.row(0)[i], first.row(0)[i]) << what << how << ", row " << i / width << ", number " << i % width;
  };
  expect_as_first(", in a batch", [&] { batch_attention(op, Lanes{}, machine.launch); });
  for (const int n_sms : {3, 60, 264}) {                                           // in blocks that walk over tiles; with one for each tile; of clusters that fold their own
    machine.launch.n_sms = n_sms;
    if (n <= kFewTokens) expect_as_first(", decoded on " + std::to_string(n_sms), [&] { decode_attention(op, Lanes{}, machine.launch); });
  }
  ASSERT_TRUE(flash_many_rows_supports(op, machine.launch));
  machine.launch.n_few_rows = 0;
  for (const StepSeq& s : all.seqs) machine.launch.n_few_rows += s.n_rows < kFlashManyRows ? s.n_rows : 0;
  expect_as_first(", as prompts", [&] { flash_attention(op, {}, machine.launch); });
}

constexpr Form kForms[] = {{"bf16", FormatId::bf16, 128}, {"f16, heads of 64", FormatId::f16, 64}, {"fp8", FormatId::fp8_e4m3, 128}, {"fp8, heads of 64", FormatId::fp8_e4m3, 64}, {"bf16, heads of 256", FormatId::bf16, 256}};

TEST(Attention, OfABatchIsThatOfFewRows) {
  std::mt19937 rng(4);
  for (const Form& form : kForms)
    for (const bool bounded : {false, true}) expect_bits(form, bounded, {{1, 1}, {128, 1}, {129, 3}, {300, 1}, {700, 1}}, rng);
}

// A prompt that begins, one that goes on, and rows of a sequence with few.
TEST(Attention, OfPromptsIsThatOfFewRows) {
  std::mt19937 rng(5);
  for (const Form& form : kForms)
    for (const bool bounded : {false, true}) expect_bits(form, bounded, {{30, 30}, {200, 3}, {420, 17}}, rng);
}

// Heads as projections leave them: normed, rotated and stored by a kernel of their own, or on the way into attention of a batch or of few.
TEST(Attention, OfSingleRowsRotatesAndStores) {
  std::mt19937 rng(6);
  for (const Form& form : kForms)
    for (const bool normed : {false, true}) {
      const std::string what = std::string(form.name) + (normed ? ", normed" : "");
      const std::vector<Sequences::Of> of = {{1, 1}, {128, 1}, {129, 1}, {300, 1}, {700, 1}};
      std::mt19937 again = rng;
      Sequences apart(form.format, form.dim, of, rng);
      const int n = int(of.size());
      Rows q = random_rows(n, kHeads * form.dim, rng), k = random_rows(n, kKvHeads * form.dim, rng), v = random_rows(n, kKvHeads * form.dim, rng), angles(n, form.dim), out(n, kHeads * form.dim);
      Rows q_weight = random_rows(1, form.dim, rng), k_weight = random_rows(1, form.dim, rng);
      for (int t = 0; t < n; ++t)
        for (int i = 0; i < form.dim / 2; ++i) angles.row(t)[i] = std::cos(float(t + i)), angles.row(t)[form.dim / 2 + i] = std::sin(float(t + i));
      enum { by_themselves, batched, decoded };
      const auto run = [&](Sequences& all, Rows& to, int way) {
        Rows queries = copy_of(q), keys = copy_of(k);
        const RopeStore rope = rope_of(form, queries.tensor, keys.tensor, v.tensor, angles.tensor, all.kv);
        const HeadNorm q_norm{.x = queries.tensor, .weight = q_weight.tensor, .n_heads = kHeads, .eps = 1e-6f}, k_norm{.x = keys.tensor, .weight = k_weight.tensor, .n_heads = kKvHeads, .eps = 1e-6f};
        const PagedAttention op = attention_of(form, to.tensor, queries.tensor, all.kv);
        Machine machine;
        machine.launch.step = all.step();
        machine.launch.max_context = all.max_context, machine.launch.n_few_rows = n, machine.launch.single_rows = true;
        machine.launch.n_sms = 264;
        std::vector<float> scratch(size_t(flash_scratch_needed(op, machine.launch) / 4));
        machine.launch.attention_scratch = scratch.data();
        if (way == decoded) return decode_attention(op, rope, normed ? &q_norm : nullptr, normed ? &k_norm : nullptr, Lanes{}, machine.launch);
        if (way == batched) return batch_attention(op, rope, normed ? &q_norm : nullptr, normed ? &k_norm : nullptr, Lanes{}, machine.launch);
        rope_store(rope, normed ? &q_norm : nullptr, normed ? &k_norm : nullptr, false, machine.launch);
        flash_attention(op, {}, machine.launch);
      };
      run(apart, out, by_themselves);
      for (const int way : {batched, decoded}) {
        std::mt19937 same = again;
        Sequences at_once(form.format, form.dim, of, same);
        Rows got(n, kHeads * form.dim);
        run(at_once, got, way);
        expect_rows(got, out, what + (way == decoded ? ", decoded" : ", batched"));
        for (int seq = 0; seq < n; ++seq)
          for (int plane = 0; plane < 2; ++plane)
            for (int head = 0; head < kKvHeads; ++head) {
              const int position = of[size_t(seq)].n_context - 1;
              const std::vector<float> stored = apart.get(plane, seq, head, position);
              ASSERT_EQ(at_once.get(plane, seq, head, position), stored) << what << ", sequence " << seq;
              const float first = v.row(seq)[head * form.dim];
              if (plane == 1) {
                ASSERT_NEAR(stored[0], first, std::fabs(first) / 16 + 0.01) << what << ", sequence " << seq;
              }
            }
      }
    }
}

// Of many rows, with a ring of rows (sm_90) and without.
TEST(Attention, HeadsOfPromptsRotateAlike) {
  std::mt19937 rng(7);
  for (const Form& form : kForms) {
    if (form.dim > 128) continue;
    const std::vector<Sequences::Of> of = {{70, 70}, {100, 3}};
    std::mt19937 again = rng;
    Sequences plain(form.format, form.dim, of, rng), staying(form.format, form.dim, of, again);
    const int n = 73;
    Rows q = random_rows(n, kHeads * form.dim, rng), k = random_rows(n, kKvHeads * form.dim, rng), v = random_rows(n, kKvHeads * form.dim, rng), angles = random_rows(n, form.dim, rng), weight = random_rows(1, form.dim, rng);
    const auto run = [&](Sequences& all, int compute_capability) {
      Rows queries = copy_of(q), keys = copy_of(k);
      const RopeStore rope = rope_of(form, queries.tensor, keys.tensor, v.tensor, angles.tensor, all.kv);
      const HeadNorm norm{.x = queries.tensor, .weight = weight.tensor, .n_heads = kHeads, .eps = 1e-6f};
      Machine machine;
      machine.launch.step = all.step();
      machine.launch.compute_capability = compute_capability;
      rope_store(rope, &norm, nullptr, false, machine.launch);
      return queries;
    };
    Rows by_plain = run(plain, 80), by_staying = run(staying, 90);
    expect_rows(by_staying, by_plain, form.name);
    for (int row = 0; row < n; ++row)
      for (int plane = 0; plane < 2; ++plane)
        for (int head = 0; head < kKvHeads; ++head) {
          const int seq = plain.seq_of[size_t(row)], position = plain.positions[size_t(row)];
          ASSERT_EQ(staying.get(plane, seq, head, position), plain.get(plane, seq, head, position)) << form.name << ", row " << row;
        }
  }
}

}  // namespace
}  // namespace ridge::cuda
