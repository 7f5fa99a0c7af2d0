// Every op but Matmul and those on KV pages: each CPU ISA against `ref`, and against itself in any number of threads and rows.
#include "conformance/conformance.h"

namespace ridge::conformance {
namespace {

// Runs ops made by build(backend, step), which returns them and the tensor to look at.
struct Built { std::vector<Op> ops; Tensor out; };
template <class Build>
Matrix result_of(Backend& backend, const Step& step, Build&& build) {
  const Built built = build(backend);
  run_step(backend, step, built.ops);
  return get(backend, built.out);
}

// Compares every CPU case with ref within the tolerance, and with the first case bit for bit.
template <class Build>
void check_everywhere(const Step& step, float tolerance, const std::string& what, Build&& build) {
  const auto ref = make_ref_backend();
  const Matrix expected = result_of(*ref, step, build);
  Matrix first;
  for (const CpuCase& c : cpu_cases()) {
    const auto cpu = make_cpu(c);
    const Matrix got = result_of(*cpu, step, build);
    const std::string name = what + " on " + cpu->name();
    expect_close(got, expected, tolerance, name);
    if (first.values.empty()) first = got;
    expect_same(got, first, name + " and the first ISA with one thread");
  }
}

PlannedStep rows_only(int n_rows) { return plan_step({{0, n_rows}}, {}); }

TEST(Embed, LooksUpTheSameRowsInEveryFormat) {
  Rng rng(1);
  for (const FormatId f : {FormatId::f32, FormatId::f16, FormatId::bf16, FormatId::q8_0, FormatId::q4_0, FormatId::q4_1, FormatId::q6_k, FormatId::nvfp4}) {
    const Matrix values = random_matrix(rng, 100, 256);
    const auto weight = encode(values, f);
    const PlannedStep planned = plan_step({{3, 5}, {0, 20}, {90, 1}}, {.page_size = 32, .seed = 4});
    for (const bool add : {false, true}) {
      const Matrix before = random_matrix(rng, 26, 256);
      check_everywhere(*planned.step, 0, std::string(format(f).name), [&](Backend& b) {
        auto* table = new (b.allocate(sizeof(Weight))) Weight(b.prepare_table(weight->stored));
        const Tensor out = put(b, before);
        return Built{{Embed{.out = out, .table = table, .scale = 1.5f, .by_position = add, .add = add}}, out};
      });
    }
  }
}

TEST(Embed, ReadsNvfp4InSeparatePlanesAndTransposedTables) {
  Rng rng(2);
  std::vector<uint8_t> codes(40 * 32), scales(40 * 4);
  for (auto& c : codes) c = static_cast<uint8_t>(rng());
  for (auto& s : scales) s = static_cast<uint8_t>(rng() % 0x7f);
  StoredWeight planes{.name = "planes", .format = FormatId::nvfp4, .rows = 40, .cols = 64, .codes = view(codes.data(), FormatId::u8, 40, 32),
                      .scales = view(scales.data(), FormatId::fp8_e4m3, 40, 4), .scale = 0.125f};
  Matrix turned = random_matrix(rng, 64, 40);
  StoredWeight transposed{.name = "transposed", .format = FormatId::f32, .rows = 40, .cols = 64, .codes = view(turned.values.data(), FormatId::f32, 64, 40), .transposed = true};
  const PlannedStep planned = plan_step({{0, 9}}, {.seed = 5, .n_vocab = 40});
  for (const StoredWeight* stored : {&planes, &transposed})
    check_everywhere(*planned.step, 0, stored->name, [&](Backend& b) {
      auto* table = new (b.allocate(sizeof(Weight))) Weight(b.prepare_table(*stored));
      const Tensor out = b.allocate_f32(9, 64);
      return Built{{Embed{.out = out, .table = table}}, out};
    });
}

TEST(AddNorm, AgreesForBothKindsAndAnyWidth) {
  Rng rng(3);
  for (const int cols : {1, 7, 16, 31, 33, 64, 95, 576, 1000}) {
    for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
      const int rows = between(rng, 1, 70);
      const bool pending = rng() % 2, weight = cols % 2 || rng() % 2, bias = rng() % 2;
      const Matrix x = random_matrix(rng, rows, cols, 3), p = random_matrix(rng, rows, cols), w = random_matrix(rng, 1, cols), c = random_matrix(rng, 1, cols);
      const PlannedStep planned = rows_only(rows);
      for (const bool look_at_x : {false, true})
        check_everywhere(*planned.step, 1e-5f, "cols " + std::to_string(cols), [&](Backend& b) {
          AddNorm op{.out = b.allocate_f32(rows, cols), .x = put(b, x), .pending_scale = 0.5f, .eps = 1e-5f, .weight_offset = 1, .kind = kind};
          if (pending) op.pending = put(b, p);
          if (weight) op.weight = put(b, w);
          if (bias) op.bias = put(b, c);
          return Built{{op}, look_at_x ? op.x : op.out};
        });
    }
  }
}

TEST(AddNorm, ARowIsTheSameAloneAndAmongOthers) {
  Rng rng(4);
  const Matrix x = random_matrix(rng, 37, 200, 2), w = random_matrix(rng, 1, 200);
  for (const CpuCase& c : cpu_cases()) {
    const auto cpu = make_cpu(c);
    const auto norm_of = [&](const Matrix& rows) {
      return result_of(*cpu, *rows_only(static_cast<int>(rows.rows)).step, [&](Backend& b) {
        const AddNorm op{.out = b.allocate_f32(rows.rows, 200), .x = put(b, rows), .weight = put(b, w), .eps = 1e-6f};
        return Built{{op}, op.out};
      });
    };
    const Matrix all = norm_of(x);
    for (const int r : {0, 17, 36}) expect_same(norm_of(x.slice(r, 1)), all.slice(r, 1), cpu->name());
  }
}

TEST(HeadNorm, AgreesWithOneWeightForAllHeadsAndOneForEach) {
  Rng rng(5);
  for (const int head_dim : {16, 64, 80, 96, 128, 250}) {
    for (const bool each : {false, true}) {
      const int n_heads = between(rng, 1, 9), rows = between(rng, 1, 40);
      const Matrix x = random_matrix(rng, rows, n_heads * head_dim), w = random_matrix(rng, 1, each ? n_heads * head_dim : head_dim);
      check_everywhere(*rows_only(rows).step, 1e-5f, "head_dim " + std::to_string(head_dim), [&](Backend& b) {
        const HeadNorm op{.x = put(b, x), .weight = put(b, w), .n_heads = n_heads, .eps = 1e-6f, .weight_offset = each ? 1.0f : 0.0f};
        return Built{{op}, op.x};
      });
    }
  }
}

TEST(RopeAngles, AreAccurateAtLargePositions) {
  const PlannedStep planned = plan_step({{0, 3}, {131000, 17}, {1000000, 1}}, {.page_size = 64, .n_freqs = 37});
  check_everywhere(*planned.step, 1e-6f, "angles", [&](Backend& b) {
    const RopeAngles op{.angles = b.allocate_f32(21, 74), .rope = 0, .n_freqs = 37};
    return Built{{op}, op.angles};
  });
}

TEST(RopeStore, RotatesQueriesInBothStyles) {
  Rng rng(6);
  for (const RopeStyle style : {RopeStyle::half, RopeStyle::interleaved}) {
    for (const auto& [head_dim, n_rot] : {std::pair{16, 16}, {80, 32}, {96, 96}, {128, 128}, {64, 10}}) {
      const int n_heads = 6, n_kv_heads = 2, rows = 21;
      const Matrix q = random_matrix(rng, rows, n_heads * head_dim), k = random_matrix(rng, rows, n_kv_heads * head_dim), v = random_matrix(rng, rows, n_kv_heads * head_dim);
      const PlannedStep planned = plan_step({{7, 20}, {100, 1}}, {.page_size = 16, .n_freqs = n_rot / 2});
      for (const bool look_at_k : {false, true})
        check_everywhere(*planned.step, 1e-6f, "head_dim " + std::to_string(head_dim), [&, head_dim = head_dim, n_rot = n_rot](Backend& b) {
          const KvPlane plane{n_kv_heads, head_dim, FormatId::f32};
          const int64_t plane_bytes = 16ll * n_kv_heads * head_dim * 4;
          KvRef kv{.base = b.allocate(planned.n_pages * 2 * plane_bytes), .page_bytes = 2 * plane_bytes, .offsets = {0, plane_bytes, 0}, .planes = {plane, plane}, .page_size = 16};
          RopeStore op{.q = put(b, q), .k = put(b, k), .v = put(b, v), .angles = b.allocate_f32(rows, n_rot), .n_heads = n_heads, .n_kv_heads = n_kv_heads,
                       .head_dim = head_dim, .v_dim = head_dim, .n_rot = n_rot, .style = style, .kv = kv};
          return Built{{RopeAngles{.angles = op.angles, .rope = 0, .n_freqs = n_rot / 2}, op}, look_at_k ? op.k : op.q};
        });
    }
  }
}

TEST(Activate, AgreesForEveryFunctionOverTheWholeRange) {
  Rng rng(7);
  for (const ActKind kind : {ActKind::silu, ActKind::gelu_tanh, ActKind::gelu_erf, ActKind::relu}) {
    for (const float spread : {0.05f, 1.0f, 4.0f, 60.0f}) {
      const int rows = between(rng, 1, 7), cols = between(rng, 1, 900);
      const Matrix gate = random_matrix(rng, rows, cols, spread), up = random_matrix(rng, rows, cols);
      const bool has_up = rng() % 2, in_place = rng() % 2;
      // The tolerance is relative to the largest result or 1; a small spread asks for absolute accuracy far below it.
      check_everywhere(*rows_only(rows).step, spread < 1 ? 2e-8f : 5e-7f, "activation " + std::to_string(int(kind)), [&](Backend& b) {
        Activate op{.gate = put(b, gate), .kind = kind};
        op.out = in_place ? op.gate : b.allocate_f32(rows, cols);
        if (has_up) op.up = put(b, up);
        return Built{{op}, op.out};
      });
    }
  }
}

TEST(Activate, KeepsInfinitiesAndNans) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const Matrix gate{1, 5, {inf, 1e30f, -1e4f, 0.0f, nan}};
  for (const CpuCase& c : cpu_cases()) {
    const auto cpu = make_cpu(c);
    for (const ActKind kind : {ActKind::silu, ActKind::gelu_tanh, ActKind::gelu_erf, ActKind::relu}) {
      const Matrix out = result_of(*cpu, *rows_only(1).step, [&](Backend& b) {
        const Activate op{.out = b.allocate_f32(1, 5), .gate = put(b, gate), .kind = kind};
        return Built{{op}, op.out};
      });
      EXPECT_EQ(out.values[0], inf);
      EXPECT_EQ(out.values[1], 1e30f);
      EXPECT_EQ(out.values[2], 0.0f);
      EXPECT_EQ(out.values[3], 0.0f);
      EXPECT_TRUE(std::isnan(out.values[4])) << cpu->name() << " " << int(kind);
    }
  }
}

TEST(GatherRows, TakesTheLogitRowsWithWhatIsPending) {
  Rng rng(8);
  const PlannedStep planned = plan_step({{3, 5}, {0, 20}, {90, 1}}, {.page_size = 32});
  const Matrix x = random_matrix(rng, 26, 300), p = random_matrix(rng, 26, 300);
  for (const bool pending : {false, true})
    check_everywhere(*planned.step, 1e-7f, "gather", [&](Backend& b) {
      GatherRows op{.out = b.allocate_f32(3, 300), .x = put(b, x), .pending_scale = 0.25f};
      if (pending) op.pending = put(b, p);
      return Built{{op}, op.out};
    });
}

TEST(ScaleCap, ScalesAndCaps) {
  Rng rng(9);
  const Matrix x = random_matrix(rng, 3, 1237, 40);
  for (const float cap : {0.0f, 30.0f})
    check_everywhere(*rows_only(3).step, 5e-7f, "cap", [&](Backend& b) {
      const ScaleCap op{.x = put(b, x), .scale = 0.7f, .cap = cap};
      return Built{{op}, op.x};
    });
}

}  // namespace
}  // namespace ridge::conformance
