// What the backends of the host do about peaks (Backend::watch_peaks): each step's are found when it is submitted, kept until it is waited for, and tokens of the
// next step that refer to them are replaced as it begins.
#pragma once
#include <array>
#include <optional>
#include <vector>

#include "backend/backend.h"

namespace ridge {

class HostPeaks {
 public:
  const Peak* watch(const Tensor& logits);
  const Step& resolve(const Step& step);     // the step itself, or a copy that knows its tokens; good until the next call
  void submitted(const Step& step);          // its logits are there; if it waits for masks, it stays until give_masks()
  void give_masks(Backend::Masks masks);
  void waited();
  const Score* scores() const { return shown_scores_.empty() ? nullptr : shown_scores_.data(); }

 private:
  void choose(const Step& step, Backend::Masks masks);

  Tensor logits_;                            // no data: nobody watches
  std::array<std::vector<Peak>, 2> found_;   // of the last two steps, in turn
  std::array<std::vector<Score>, 2> scores_;           // the same; empty: nobody asked
  std::vector<Peak> shown_;
  std::vector<Score> shown_scores_;
  std::vector<Peak> unpenalised_;            // logits of a row that its penalties changed, as they were
  std::vector<float> unmasked_;              // a row as it was
  const Step* waits_ = nullptr;              // for masks
  int turn_ = 0, n_under_way_ = 0;           // turn_: of the step that was submitted last
  std::optional<Step> resolved_;
};

}  // namespace ridge
