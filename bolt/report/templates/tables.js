// Tables of a page: sort by a column, filter rows, show all rows, copy and save as TSV. Without this script a table is whole.
const SHOWN = 12; // rows of a long table before the reader asks for all of it
const missing = text => ["", "–"].includes(text);
const textOf = cell => cell.innerText.trim().replace(/\s+/g, " ");

function order(a, b) {
  if (missing(a) || missing(b)) return missing(a) - missing(b);
  const [x, y] = [a, b].map(text => parseFloat(text.replace("−", "-").replace(/^[<≥≤>] ?/, "")));
  return isNaN(x) || isNaN(y) ? a.localeCompare(b, undefined, {numeric: true}) : x - y;
}

function equip(figure, number) {
  const table = figure.querySelector("table"), body = table.tBodies[0], rows = [...body.rows];
  const heads = [...table.tHead.rows[0].cells];
  const bar = document.createElement("div");
  bar.className = "tools";
  let all = rows.length <= SHOWN + 3, words = "";

  const button = (text, action) => {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.addEventListener("click", () => action(made));
    bar.append(made);
    return made;
  };
  const matching = () => [...body.rows].filter(row => !words || row.innerText.toLowerCase().includes(words) || row.textContent.toLowerCase().includes(words));
  const draw = () => {
    const found = new Set(matching());
    let n = 0;
    for (const row of body.rows) {
      const kept = found.has(row) && (all || words || n < SHOWN);
      row.classList.toggle("unshown", !kept);
      n += kept;
    }
    if (more) more.hidden = all || Boolean(words);
    if (count) count.textContent = words ? `${n} of ${rows.length} rows` : "";
  };
  const tsv = () => [heads, ...matching().map(row => [...row.cells])]
    .map(cells => cells.map(cell => (cell.dataset.text ?? cell.textContent).trim().replace(/\s+/g, " ")).join("\t")).join("\n") + "\n";

  let count;
  if (rows.length > SHOWN) {
    const filter = document.createElement("input");
    filter.type = "search";
    filter.placeholder = "filter rows";
    filter.setAttribute("aria-label", "filter rows");
    filter.addEventListener("input", () => { words = filter.value.toLowerCase(); draw(); });
    count = document.createElement("span");
    count.setAttribute("role", "status");
    bar.append(filter, count);
  }
  const more = all ? null : button(`Show all ${rows.length} rows`, () => { all = true; draw(); });
  if (rows.length > 1) {
    if (navigator.clipboard) button("Copy", async made => {
      await navigator.clipboard.writeText(tsv());
      made.textContent = "Copied";
    });
    button("Save as TSV", () => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([tsv()], {type: "text/tab-separated-values"}));
      link.download = `table-${number + 1}.tsv`;
      link.click();
    });
    heads.forEach((head, column) => {
      if (!head.textContent.trim() && column) return;
      const sorter = document.createElement("button");
      sorter.type = "button";
      sorter.append(...head.childNodes);
      if (!sorter.textContent.trim()) sorter.setAttribute("aria-label", "sort by name");
      head.append(sorter);
      sorter.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach(other => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const key = row => row.cells[column].dataset.value ?? textOf(row.cells[column]);
        body.append(...[...body.rows].sort((a, b) => {
          const sign = down && !missing(key(a)) && !missing(key(b)) ? -1 : 1;
          return sign * order(key(a), key(b));
        }));
        draw();
      });
    });
  }
  if (bar.childElementCount) figure.prepend(bar);
  draw();
  const reveal = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target && body.contains(target)) { all = true; draw(); target.scrollIntoView(); }
  };
  addEventListener("hashchange", reveal);
  reveal();
}

document.querySelectorAll("figure.table").forEach(equip);
// what a keyboard cannot reach it cannot scroll
for (const box of document.querySelectorAll(".scroll")) if (box.scrollWidth > box.clientWidth) {
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", "table, wider than the page");
}
