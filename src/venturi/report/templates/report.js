// Sorts and filters tables, and shows the value of the nearest point of a figure. Without scripts, the page has the same content.
"use strict";
(() => {
  const FILTER_FROM = 16; // rows
  const NEAR_PX = 24;
  const PREFIXES = { k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40 };
  const SECONDS = { ns: 1e-9, "µs": 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600 };
  const NUMBER = "([+-]?[\\d,]*\\.?\\d+(?:e[+-]?\\d+)?)";
  const FIRST = new RegExp(`^[≤≥<>~×±]?\\s*${NUMBER}(?:\\s*(?:–|to)\\s*${NUMBER})?\\s*([^\\s\\d(,]*)`);
  const SECOND_PART = /^\S+ (?:h|min) (\d\d) (min|s)\b/; // of "4 min 05 s"

  const textOf = cell => cell.textContent.replace(/[\u00a0\s]+/g, " ").replace(/−/g, "-").trim();
  const parse = digits => Number(digits.replace(/,/g, ""));

  // Returns the first number of a text in base units, or null.
  function numberOf(text) {
    const match = FIRST.exec(text);
    if (!match) return null;
    const unit = match[3];
    if (unit in SECONDS) {
      const part = SECOND_PART.exec(text);
      return parse(match[1]) * SECONDS[unit] + (part ? Number(part[1]) * SECONDS[part[2]] : 0);
    }
    const bytes = /^([KMGT]i|[kMGTP])?([Bb])(\/\w+)?$/.exec(unit);
    const factor = bytes ? (PREFIXES[bytes[1]] || 1) * (bytes[2] === "B" ? 8 : 1) : 1;
    return parse(match[1]) * factor;
  }

  function sortBy(table, column, descending) {
    const body = table.tBodies[0];
    const width = table.tHead.rows[0].cells.length;
    const rows = [...body.rows].filter(row => row.cells.length === width);
    const notes = [...body.rows].filter(row => row.cells.length !== width);
    const keyed = rows.map(row => {
      const text = textOf(row.cells[column]);
      return { row, text, number: numberOf(text), none: text === "" || text === "–" };
    });
    const numeric = keyed.every(one => one.none || one.number !== null);
    const order = numeric
      ? (a, b) => a.number - b.number
      : (a, b) => a.text.localeCompare(b.text, "en", { numeric: true });
    keyed.sort((a, b) => a.none - b.none || (a.none ? 0 : order(a, b) * (descending ? -1 : 1)));
    body.append(...keyed.map(one => one.row), ...notes);
  }

  function makeSortable(table) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      if (!textOf(head)) return;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const descending = head.getAttribute("aria-sort") === "ascending";
        heads.forEach(other => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", descending ? "descending" : "ascending");
        sortBy(table, column, descending);
      });
    });
  }

  function makeSearchable(table) {
    const frame = table.closest(".scroll") || table;
    const rows = [...table.tBodies[0].rows];
    const name = table.caption ? textOf(table.caption.firstChild) : frame.getAttribute("aria-label") || "table";
    const box = document.createElement("p");
    box.className = "filter";
    const field = document.createElement("input");
    field.type = "search";
    field.placeholder = "Filter rows";
    field.setAttribute("aria-label", `Filter rows: ${name}`);
    const count = document.createElement("span");
    count.setAttribute("role", "status");
    box.append(field, count);
    frame.before(box);
    field.addEventListener("input", () => {
      const wanted = field.value.toLowerCase().trim();
      let shown = 0;
      for (const row of rows) {
        row.hidden = ![...row.cells].some(cell => textOf(cell).toLowerCase().includes(wanted));
        shown += !row.hidden;
      }
      count.textContent = wanted ? `${shown} of ${rows.length} rows` : "";
    });
  }

  function makeReadable(svg) {
    const points = [...svg.querySelectorAll("g > title, use > title")].map(title => {
      const mark = title.parentNode;
      const text = title.textContent;
      title.remove(); // the browser would show it a second time
      return { mark, text };
    });
    if (!points.length) return;
    const tip = document.createElement("div");
    tip.className = "tip";
    tip.hidden = true;
    tip.setAttribute("aria-hidden", "true");
    svg.after(tip);
    const hide = () => { tip.hidden = true; };
    const show = event => {
      let best = null;
      let least = NEAR_PX;
      for (const point of points) {
        const box = point.mark.getBoundingClientRect();
        const across = Math.max(box.left - event.clientX, 0, event.clientX - box.right);
        const along = Math.max(box.top - event.clientY, 0, event.clientY - box.bottom);
        const distance = Math.hypot(across, along);
        if (distance < least) [best, least] = [{ box, text: point.text }, distance];
      }
      if (!best) return hide();
      tip.textContent = best.text;
      tip.hidden = false;
      const left = Math.min((best.box.left + best.box.right) / 2 + 12, document.documentElement.clientWidth - tip.offsetWidth - 8);
      tip.style.left = `${Math.max(left, 8)}px`;
      tip.style.top = `${Math.max(best.box.top - tip.offsetHeight - 8, 8)}px`;
    };
    svg.addEventListener("pointermove", show);
    svg.addEventListener("pointerdown", show);
    svg.addEventListener("pointerleave", hide);
    addEventListener("scroll", hide, { passive: true });
  }

  for (const table of document.querySelectorAll("table")) {
    if (!table.tHead || table.tHead.rows.length !== 1 || !table.tBodies.length) continue;
    const rows = table.tBodies[0].rows.length;
    if (rows > 1) makeSortable(table);
    if (rows >= FILTER_FROM) makeSearchable(table);
  }
  document.querySelectorAll("figure svg").forEach(makeReadable);
})();
