// A run's figures: thinned by the service, then added to as they come. Once there are many they are fetched thinned again.
const MANY = 8000;
const NONE = { step: [], at: [], value: [] };

export class Figures {
  constructor(jobId) {
    Object.assign(this, { jobId, n: 0, lines: {}, isThinned: false, detail: null, isStale: false });
  }

  async load() {
    const found = await this.fetch("");
    Object.assign(this, { n: found.n, lines: found.figures, isThinned: found.is_thinned, isStale: false });
  }

  async fetch(query) {
    const answer = await fetch(`/jobs/${this.jobId}/figures${query}`);
    if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
    return answer.json();
  }

  line(name) { return this.detail?.[name] ?? this.lines[name] ?? NONE; }

  add(item) {
    if (item.n <= this.n) return;
    this.n = item.n;
    const at = Date.parse(item.at);
    for (const [name, value] of Object.entries(item.values)) {
      if (/_rank\d+$/.test(name)) continue;
      const line = (this.lines[name] ??= { step: [], at: [], value: [] });
      // A step done again by a later attempt, or too many points: the whole is fetched anew.
      if (line.step.at(-1) > item.step || line.step.length > MANY) this.isStale = true;
      line.step.push(item.step);
      line.at.push(at);
      line.value.push(value); // null for NaN and infinities: a gap
    }
  }

  // The part between two steps in more detail, while the page looks at it.
  async zoom(range, byTime) {
    this.detail = null;
    if (!range || !this.isThinned) return;
    const [first, last] = byTime ? this.stepsWithin(range) : range;
    const found = await this.fetch(`?first=${Math.max(0, Math.floor(first))}&last=${Math.max(0, Math.ceil(last))}`);
    this.detail = found.figures;
  }

  stepsWithin([from, to]) {
    const line = Object.values(this.lines).reduce((longest, other) => (other.step.length > longest.step.length ? other : longest), NONE);
    const inside = line.step.filter((_, index) => line.at[index] / 1000 >= from && line.at[index] / 1000 <= to);
    return inside.length ? [inside[0], inside.at(-1)] : [0, line.step.at(-1) ?? 0];
  }
}
