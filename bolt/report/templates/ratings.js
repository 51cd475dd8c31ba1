// Rating scans by eye: kept in this browser, saved as the TSV that the configuration reads (`quality: ratings`).
const STORE = "bolt ratings of " + document.body.dataset.dataset;
const ratings = () => JSON.parse(localStorage.getItem(STORE) ?? "{}");

function rate(scan, change) {
  const all = ratings();
  all[scan] = {rating: "", note: "", ...all[scan], ...change};
  if (!all[scan].rating && !all[scan].note) delete all[scan];
  localStorage.setItem(STORE, JSON.stringify(all));
  document.querySelectorAll("[data-rate]").forEach(show);
}

function show(place) {
  const {rating = "", note = ""} = ratings()[place.dataset.rate] ?? {};
  const [choice, words] = [place.querySelector("select"), place.querySelector("input")];
  choice.value = rating;
  if (document.activeElement !== words) words.value = note;
  place.dataset.value = place.dataset.text = [rating, note].filter(Boolean).join(": ");
}

for (const place of document.querySelectorAll("[data-rate]")) {
  const scan = place.dataset.rate, choice = document.createElement("select"), words = document.createElement("input");
  for (const rating of ["", "keep", "unsure", "exclude"]) choice.add(new Option(rating || "not rated", rating));
  choice.setAttribute("aria-label", `rating of ${scan}`);
  choice.addEventListener("change", () => rate(scan, {rating: choice.value}));
  words.placeholder = "note";
  words.setAttribute("aria-label", `note on ${scan}`);
  words.addEventListener("input", () => rate(scan, {note: words.value}));
  place.append(choice, " ", words);
  show(place);
}

document.querySelector("#save-ratings")?.addEventListener("click", () => {
  const lines = Object.entries(ratings()).map(([scan, {rating, note}]) => [scan, rating || "n/a", note.replace(/\s+/g, " ") || "n/a"]);
  const link = document.createElement("a");
  const text = [["scan_id", "rating", "note"], ...lines].map(line => line.join("\t")).join("\n") + "\n";
  link.href = URL.createObjectURL(new Blob([text], {type: "text/tab-separated-values"}));
  link.download = "ratings.tsv";
  link.click();
});

// keys, outside of fields: k keep, u unsure, e exclude (the scan that fills most of the screen), n its note, arrows to other people
addEventListener("keydown", event => {
  if (event.target.matches("input, select") || event.ctrlKey || event.metaKey || event.altKey) return;
  const way = {ArrowLeft: "prev", ArrowRight: "next"}[event.key];
  if (way) return document.querySelector(`a[rel=${way}]`)?.click();
  const sections = [...document.querySelectorAll("section")].filter(section => section.querySelector("[data-rate]"));
  const seen = section => { const box = section.getBoundingClientRect(); return Math.min(box.bottom, innerHeight) - Math.max(box.top, 0); };
  const place = sections.sort((a, b) => seen(b) - seen(a))[0]?.querySelector("div[data-rate]");
  const rating = {k: "keep", u: "unsure", e: "exclude"}[event.key];
  if (!place || !(rating || event.key === "n")) return;
  event.preventDefault();
  if (rating) rate(place.dataset.rate, {rating});
  else place.querySelector("input").focus();
});
