// The log: some thousand lines in the page whatever the log's length, more by page at either end. Text, never markup.
const KEPT = 2000;
const PAGE = 500;
const NEAR = 200; // pixels from an end at which more is fetched

export class LogView {
  constructor(jobId, levels) {
    Object.assign(this, { jobId, before: null, after: 0, newest: 0, waiting: [], isBusy: false });
    this.levels = Object.entries(levels).map(([level, pattern]) => [level, new RegExp(pattern)]);
    this.box = document.getElementById("log");
    this.said = document.getElementById("log-said");
    this.follow = document.getElementById("follow");
    this.filter = { search: document.getElementById("log-search"), rank: document.getElementById("log-rank"), level: document.getElementById("log-level") };
    this.listen();
  }

  listen() {
    const asked = new URLSearchParams(location.search);
    for (const [name, field] of Object.entries(this.filter)) field.value = asked.get(name) ?? "";
    let timer;
    document.getElementById("log-filter").addEventListener("input", (event) => {
      if (event.target === this.follow) { if (this.follow.checked) this.toEnd(); return; }
      clearTimeout(timer);
      timer = setTimeout(() => { this.keep(); this.toEnd(); }, 250);
    });
    document.getElementById("log-filter").addEventListener("submit", (event) => { event.preventDefault(); this.keep(); this.toEnd(); });
    document.getElementById("log-end").addEventListener("click", () => { this.follow.checked = true; this.toEnd(); });
    this.box.addEventListener("scroll", () => this.scrolled(), { passive: true });
  }

  get isFiltered() { return Object.values(this.filter).some((field) => field.value !== ""); }

  keep() {
    const address = new URL(location);
    for (const [name, field] of Object.entries(this.filter)) field.value ? address.searchParams.set(name, field.value) : address.searchParams.delete(name);
    history.replaceState(null, "", address);
  }

  async page(ends) {
    const query = new URLSearchParams({ ...ends, limit: PAGE });
    for (const [name, field] of Object.entries(this.filter)) if (field.value) query.set(name, field.value);
    const answer = await fetch(`/jobs/${this.jobId}/log?${query}`);
    if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
    return answer.json();
  }

  // The newest lines that are wanted. A later call makes an earlier one, that has not answered yet, count for nothing.
  async toEnd() {
    const turn = (this.turn = (this.turn ?? 0) + 1);
    this.isBusy = true;
    try {
      let found = await this.page({});
      const lines = found.lines;
      const { newest } = found;
      while (found.next && lines.length < PAGE && turn === this.turn) { // a search goes on piece by piece
        this.said.textContent = `Searching; ${lines.length} lines so far`;
        found = await this.page({ before: found.next });
        lines.unshift(...found.lines);
      }
      if (turn !== this.turn) return;
      this.box.replaceChildren(...lines.map((line) => row(line, line.level)));
      this.before = found.next;
      this.after = this.newest = Math.max(newest, this.after);
      this.waiting = this.waiting.filter((line) => line.n > newest);
      this.isAtEnd = true;
      this.box.scrollTop = this.box.scrollHeight;
      this.say();
    } catch (error) {
      this.said.textContent = `The log could not be read: ${error.message}`;
    } finally {
      if (turn === this.turn) this.isBusy = false;
    }
  }

  async scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.box;
    if (scrollHeight - scrollTop - clientHeight > NEAR && this.follow.checked && !this.isBusy) this.follow.checked = false;
    if (this.isBusy) return;
    if (scrollTop < NEAR && this.before) await this.more("before");
    else if (scrollHeight - scrollTop - clientHeight < NEAR && !this.isAtEnd) await this.more("after");
  }

  async more(end) {
    const turn = this.turn;
    this.isBusy = true;
    try {
      const found = await this.page({ [end]: end === "before" ? this.before : this.after });
      if (turn !== this.turn) return;
      const rows = found.lines.map((line) => row(line, line.level));
      if (end === "before") this.older(rows, found);
      else this.newer(rows, found);
      this.say();
    } catch (error) {
      this.said.textContent = `The log could not be read: ${error.message}`;
    } finally {
      if (turn === this.turn) this.isBusy = false;
    }
  }

  older(rows, found) {
    const height = this.box.scrollHeight;
    this.box.prepend(...rows);
    this.box.scrollTop += this.box.scrollHeight - height;
    this.before = found.next;
    if (this.box.childElementCount > KEPT) {
      while (this.box.childElementCount > KEPT) this.box.lastChild.remove();
      this.after = Number(this.box.lastChild.dataset.n);
      this.isAtEnd = false;
    }
  }

  newer(rows, found) {
    this.box.append(...rows);
    this.after = found.next ?? found.newest;
    this.isAtEnd = found.next === null;
    this.newest = Math.max(this.newest, found.newest);
    if (this.isAtEnd) this.waiting = this.waiting.filter((line) => line.n > found.newest);
    this.trimTop();
  }

  trimTop() {
    if (this.box.childElementCount <= KEPT) return;
    const height = this.box.scrollHeight;
    while (this.box.childElementCount > KEPT) this.box.firstChild.remove();
    this.box.scrollTop -= height - this.box.scrollHeight;
    this.before = Number(this.box.firstChild.dataset.n);
  }

  take(line) {
    this.newest = Math.max(this.newest, line.n);
    if (line.n > this.after) this.waiting.push(line);
    if (this.waiting.length > KEPT) { this.waiting = this.waiting.slice(-KEPT / 2); this.hasLeftOut = true; }
  }

  // Lines that came: put in place when the end is shown, else only counted.
  draw() {
    if (!this.waiting.length || this.isBusy) return;
    if (this.hasLeftOut && this.isAtEnd) { this.hasLeftOut = false; this.toEnd(); return; }
    if (!this.isAtEnd) { this.say(); return; }
    const rows = this.waiting.filter((line) => this.isWanted(line)).map((line) => row(line, this.levelOf(line.text)));
    this.after = this.waiting.at(-1).n;
    this.waiting = [];
    if (rows.length) {
      this.box.append(...rows);
      if (this.follow.checked) { this.trimTop(); this.box.scrollTop = this.box.scrollHeight; }
      else if (this.box.childElementCount > 2 * KEPT) this.trimTop();
    }
    this.say();
  }

  levelOf(text) { return this.levels.find(([, pattern]) => pattern.test(text))?.[0] ?? "info"; }

  isWanted(line) {
    const { search, rank, level } = this.filter;
    const found = this.levelOf(line.text);
    return line.text.toLowerCase().includes(search.value.toLowerCase()) && (rank.value === "" || line.rank === Number(rank.value))
      && (level.value === "" || found === "error" || found === level.value);
  }

  say() {
    const n = this.box.childElementCount;
    const parts = [!n ? (this.isFiltered ? "No line is like that." : "No line was written.") : `${n} lines shown${this.isFiltered ? "" : ` of ${this.newest}`}`];
    if (!this.isAtEnd) parts.push("newer ones follow below");
    if (this.before) parts.push("older ones above");
    this.said.textContent = parts.join("; ");
  }
}

function row(line, level) {
  const element = document.createElement("div");
  element.className = level;
  element.dataset.n = line.n;
  const source = document.createElement("span");
  source.className = "rank";
  source.textContent = `${line.source} `;
  element.append(source, line.text);
  return element;
}
