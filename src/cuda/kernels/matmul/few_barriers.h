// Barriers within a block of the matmul of few tokens, among teams of 8 warps that multiply and the warps that finish their tiles.
//
// A team's sums go to the warp that finishes its tiles by turns through [2][token][warp][16]: the team arrives when they are there, that warp when it has read them.
//
// They are numbered barriers. compute-sanitizer's racecheck does not know arrivals without a wait at those, nor a meeting of threads of which some have met before: in builds for it
// (RIDGE_RACECHECK) they lie in shared memory, behind the gates.
#pragma once
#include <cstddef>

#include "cuda/lib/async_copy.h"

namespace ridge::cuda::few {

constexpr int kTeam = 8;                                                    // warps
enum class Sums { there, read };
__device__ inline int number_of(Sums sums, int team, int turn) { return (sums == Sums::there ? 0 : 4) + 2 * team + turn; }

constexpr int kBarriersAt = 256;
#if defined(RIDGE_RACECHECK)
constexpr int kBarrierBytes = 128;
#else
constexpr int kBarrierBytes = 0;
#endif

#if !defined(RIDGE_SM90)                                                    // where the kernel is not: what the host's compiler and others have to see

template <int kTeams>
__device__ void meet() {}

#elif defined(RIDGE_RACECHECK)

constexpr int kMeeting = 8;
__device__ inline Barrier* barrier(std::byte* memory, int number) { return reinterpret_cast<Barrier*>(memory + kBarriersAt) + number; }
template <int kTeams>
__device__ void make_barriers(std::byte* memory) {
  for (int team = 0; team < 2; ++team)
    for (int turn = 0; turn < 2; ++turn) init_barrier(barrier(memory, number_of(Sums::there, team, turn)), kTeam * 32), init_barrier(barrier(memory, number_of(Sums::read, team, turn)), 32);
  make_meeting(barrier(memory, kMeeting), kTeams * kTeam * 32);
}
__device__ inline void arrive_at_sums(std::byte* memory, Sums sums, int team, int turn) { arrive(barrier(memory, number_of(sums, team, turn))); }
__device__ inline void await_sums(std::byte* memory, Sums sums, int team, int turn, int nth) { await(barrier(memory, number_of(sums, team, turn)), uint32_t(nth) & 1); }
template <int kTeams>
__device__ void meet() {
  extern __shared__ __align__(128) std::byte memory[];
  cuda::meet(barrier(memory, kMeeting), 0, 0);
}

#else

constexpr int kFirstOfSums = 5, kTeamAndOne = (kTeam + 1) * 32;
template <int kTeams>
__device__ void make_barriers(std::byte*) {}
__device__ inline void arrive_at_sums(std::byte*, Sums sums, int team, int turn) { arrive_among_threads(kFirstOfSums + number_of(sums, team, turn), kTeamAndOne); }
// nth: how often it has been waited for before.
__device__ inline void await_sums(std::byte*, Sums sums, int team, int turn, int /*nth*/) { sync_threads_of(kFirstOfSums + number_of(sums, team, turn), kTeamAndOne); }
// All threads of the teams, with what they wrote to shared memory.
template <int kTeams>
__device__ void meet() { sync_threads_of(4, kTeams * kTeam * 32); }

#endif

}  // namespace ridge::cuda::few
