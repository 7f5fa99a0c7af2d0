// The kernels' launchers. Each takes an op, the step as the device sees it, and the stream; shapes come from the op's tensors, never from device memory.
#pragma once
#include <cuda_runtime.h>

#include <optional>
#include <span>

#include "backend/backend.h"
#include "cuda/gemm_way.h"
#include "cuda/lib/lanes.h"
#include "cuda/lib/mark.h"
#include "cuda/lib/relay.h"
#include "cuda/lib/tile_squares.h"
#include "cuda/lib/tiles.h"

namespace ridge::cuda {

// Whether the kernels that need sm_90a were compiled: without it their bodies are empty.
#if defined(RIDGE_CUDA_SM90A)
constexpr bool kHasSm90a = true;
#else
constexpr bool kHasSm90a = false;
#endif

// Steps of up to so many tokens have kernels of their own: tokens are the 8 columns of one mma.
constexpr int kFewTokens = 8;
constexpr int kMostSeveral = 32;                                            // several tokens
constexpr int kMostPhases = 4;                                              // matmuls of one kernel
constexpr int kSharedForOthers = 16 << 10;                                  // bytes of a multiprocessor's shared memory that most kernels leave to what runs beside them

// What steps choose, and where the next one finds it: two tables of `rows` numbers, used by turns. A step's turn lies in front of its block in the device's memory,
// because a captured graph keeps its arguments. A graph that is replayed in vain leaves what the step before chose as it is.
struct Choices {
  const int32_t* turn;                       // 0 or 1
  int32_t* tokens;                           // [2][rows]; null: nobody watches
  Peak* peaks;                               // [2][rows], where the host reads it
  Score* scores;                             // the same, of steps that have some; null before the first of them
  const Draw* draws;                         // by row, in the step's block
  const TokenCount* counts;                  // the same: the lists of their penalties
  const uint32_t* masks;                     // [rows][words of a row], of rows that have one; null where the step has none
  float* unpenalised;                        // [rows], then by count: logits that penalties change, as they were
  int rows;
};

struct Launch {
  cudaStream_t stream;
  StepView step;
  Choices choices;
  int max_context;                           // of the step's sequences, rounded up to a power of two, so that a captured graph stays valid while they grow
  float* attention_scratch;                  // partial results of split attention
  int64_t attention_scratch_bytes;
  float* tile_relays;                        // the same of kTileRelayBytes, in which they come to blocks that wait for them (kernels/attention/fold.h); null: none
  std::byte* matmul_scratch;                 // activations in bf16 for many tokens
  int64_t matmul_scratch_bytes;
  float4* chain_sums;                        // of matmuls of many tokens that take one chain at a time (kernels/matmul/gemm.cu); null before sm_90
  std::byte* activated;                      // activated rows in bf16 between two matmuls: as rows for few tokens, as tiles for many
  int64_t activated_bytes;
  std::byte* scaled;                         // rows without their norm's factor, as the matmul of several tokens takes them (lib/lanes.h)
  float* tile_squares;                       // and what the factor is made of (lib/tile_squares.h); both of kMostScaledCols numbers a row; null before sm_90
  float* factors;                            // of norms that leave them to the matmul of many tokens: one a row
  int64_t factors_bytes;
  std::byte* relays;                         // between the phases of a kernel (phases.h); null: none
  int n_sms, max_shared_bytes;               // of the device; shared memory a block may ask for, all but kSharedForOthers
  int compute_capability;                    // 90: sm_90
  bool even;                                 // the step's contexts are half as long as the longest, on average, or longer
  bool single_rows;                          // every sequence has one row in this step, that of its number
  int n_few_rows;                            // at least the rows of sequences with few rows in this step (cuda/kernels/attention/flash.h); all rows, or a power of two
  GemmWay gemm_way;
  Mark mark;                                 // left by kernels that put K and V into pages: once a layer
};

void embed(const Embed& op, const Launch& launch);
// Where a norm leaves its out, if not there: as the input of a matmul for many tokens (lib/tiles.h) or for several. With factors or squares: without its factor, which is left to that matmul.
struct NormedAs { Tiles tiles{}; Lanes lanes{}; float* factors = nullptr; TileSquares squares{}; };
void add_norm(const AddNorm& op, const NormedAs& as, const Launch& launch);
bool norm_many_takes(const AddNorm& op);                                             // whether tiles may be made by the next one, which is for many tokens
void norm_many(const AddNorm& op, Tiles tiles, float* factors, const Launch& launch);
void head_norm(const HeadNorm& op, const Launch& launch);
void rope_angles(const RopeAngles& op, const Launch& launch);
// With norms: of q's and k's heads first (both of one head's width; rms with weights alone, lib/rotate.h), in the same kernel.
// rounds_queries, where rope_rounds_queries(): queries are left in the format of K, q.format of attention, in rows that start where those of f32 did.
void rope_store(const RopeStore& op, const HeadNorm* q_norm, const HeadNorm* k_norm, bool rounds_queries, const Launch& launch);
bool rope_rounds_queries(const RopeStore& op, const Launch& launch);
void paged_attention(const PagedAttention& op, Tiles tiles, const Launch& launch);         // tiles: the same, where attention_tiles()
bool attention_tiles(const PagedAttention& op, const Launch& launch);
bool paged_attention_supports(const PagedAttention& op);                             // a function of the layer alone
void add_scaled(const AddScaled& op, const Launch& launch);
void scale_by_position(const ScaleByPosition& op, const Launch& launch);
void activate(const Activate& op, const Launch& launch);
void gather_rows(const GatherRows& op, const Launch& launch);
void scale_cap(const ScaleCap& op, const Launch& launch);
// Penalties on rows of logits, before the next ones look at them; and back, after them.
void penalise(const Tensor& rows, const Launch& launch);
void unpenalise(const Tensor& rows, const Launch& launch);
// The largest number of each row and where it is (the first among equals), to the tables of the step's turn; token -1 when one of them is NaN. `state`: 16 bytes a row,
// zero before and after.
void find_peaks(const Tensor& rows, std::byte* state, const Launch& launch);
// Then what the step's Draws choose, in its place; token -1 where that is left open.
void draw(const Tensor& rows, std::byte* scratch, const Launch& launch);
// And the Scores of rows that ask for them, whose logits are the model's own.
void score(const Tensor& rows, std::byte* scratch, const Launch& launch);
void find_top(TopLogits* top, const Tensor& rows, std::byte* scratch, const Launch& launch);
int64_t row_scratch_bytes(const Tensor& rows);                                       // of each of the three
// tiles: its input, if it lies there already. factors: what its sums are multiplied with, by row; null: nothing. residual, where gemm_takes() an op of one weight: x += out of a norm that follows, in place of out.
void matmul(const Matmul& op, std::byte* tiles, const float* factors, const AddNorm* residual, const Launch& launch);

// Ops around a matmul of few tokens that its kernel does on the way. Null or nothing: not there.
struct Around {
  std::optional<AddNorm> norm;               // before: rms, no bias, nothing pending; few tokens: its x is read, in place of its out; several: x_lanes and the step's tile_squares have it
  const std::byte* x_bf16 = nullptr;         // or: the input as rows of bf16, padded with zeros to whole units
  const Activate* activate = nullptr;        // after: gate = out[0], up = out[1]
  std::byte* bf16_out = nullptr;             // and its result again as x_bf16 of the next matmul
  const AddNorm* residual = nullptr;         // after: x += pending_scale * out[0] of a norm that follows
  const std::byte* x_relay = nullptr;        // one token: the input comes in this relay (lib/relay.h), as x_bf16 has it, where that is not null
  float* relay = nullptr;                    // one token: where x of `residual` goes as well
  const std::byte* x_lanes = nullptr;        // several tokens: the input lies there already
  Lanes next_lanes;                          // several tokens: what the norm of `residual` makes of x goes there and to the step's tile_squares
  Lanes out_lanes;                           // several tokens: what is activated goes there and nowhere else
};
bool takes_few_tokens(const Matmul& op, const Launch& launch);                       // false, too, where several_tokens_gain()
// Up to kMostPhases of one token in one kernel, each over what the one before has made, which comes in a relay. Its blocks wait for each other: they are as many as the device has multiprocessors,
// and each of these has room for one as soon as what came before has ended; what comes after starts when all of them have.
struct FewPhase { Matmul op; Around around; };
bool few_tokens_phased(const Matmul& op);                                            // whether kernels of more than one phase gain anything in its format
bool few_tokens_follow(const Matmul& next, const Matmul& op, const Launch& launch);      // whether one kernel has both
bool few_tokens_occupy(const Matmul& op, const Launch& launch);                          // whether every team of warps has rows of it
void matmul_few_tokens(std::span<const FewPhase> phases, const RelayWords& cleared, const Launch& launch);

// The same for several tokens (sm_90a): `x_bf16` and `bf16_out` are not for it. Its input is copied to matmul_scratch first, where it does not lie in lanes already.
bool takes_several_tokens(const Matmul& op, const Launch& launch);
bool several_tokens_gain(const Matmul& op, const Launch& launch);                    // whether it takes less time than as one of few
void matmul_several_tokens(const Matmul& op, const Around& around, const Launch& launch);
Lanes lanes_for(const Matmul& op, std::byte* data);                                  // how that matmul wants its input
void input_in_lanes(const Lanes& out, const Tensor& x, const Launch& launch);

// The same for a step of few rows in all, in less time; paged_attention's scratch is enough.
bool decode_attention_takes(const PagedAttention& op, const Launch& launch);
void decode_attention(const PagedAttention& op, const Lanes& lanes, const Launch& launch);     // lanes: its out, and nowhere else
// With what comes before it, where q and the KV are those of `rope`: norms of heads (null: none), rotation, storing.
void decode_attention(const PagedAttention& op, const RopeStore& rope, const HeadNorm* q_norm, const HeadNorm* k_norm, const Lanes& lanes, const Launch& launch);
// And for a step of many sequences with few rows each; no scratch.
bool batch_attention_takes(const PagedAttention& op, const Launch& launch);
void batch_attention(const PagedAttention& op, const Lanes& lanes, const Launch& launch);
// With what comes before it, as above, for heads that rotate whole and by halves.
bool batch_attention_rotates(const PagedAttention& op, const RopeStore& rope, const Launch& launch);
void batch_attention(const PagedAttention& op, const RopeStore& rope, const HeadNorm* q_norm, const HeadNorm* k_norm, const Lanes& lanes, const Launch& launch);

// Scratch that paged_attention needs in this step.
int64_t attention_scratch_needed(const PagedAttention& op, const Launch& launch);

// Reads a buffer once, at full width: the bandwidth that the other kernels are compared with.
void read_all(const void* data, int64_t n_bytes);
// Reads a buffer as a matmul of few tokens would its weights (sm_90), n_at_once (12 at most) times 16 KB at once a multiprocessor, and does nothing with it: the least that such a matmul takes. With an
// input (kMostInputInTurn bytes at most), that comes to every multiprocessor, too, when the kernel before has ended; its words, over and over, are the results.
constexpr int kMostInputInTurn = 24 << 10;
void read_in_turn(const std::byte* data, int64_t n_bytes, int n_at_once, std::span<const std::byte> input, std::span<std::byte> results, const Launch& launch);

}  // namespace ridge::cuda
