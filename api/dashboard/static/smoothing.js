// An exponential average without the bias of its start (as Adam corrects its moments). Gaps stay gaps.
export function smoothed(values, weight) {
  let mean = 0;
  let share = 1;
  return values.map((value) => {
    if (value == null) return value;
    mean = weight * mean + (1 - weight) * value;
    share *= weight;
    return mean / (1 - share);
  });
}
