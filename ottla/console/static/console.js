// What pages do beyond links and forms: the theme, polling, confirmations, keys, and streams of records.
"use strict";

// -- Theme ------------------------------------------------------------------------------------------------------------
document.querySelector("[data-theme-switch]")?.addEventListener("click", () => {
  const next = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try { localStorage.setItem("theme", next); } catch { /* it lasts as long as the page */ }
  dispatchEvent(new Event("themechange"));
});

// -- Polling: not while nobody looks; the page says when the console is gone -----------------------------------------------
document.body.addEventListener("htmx:beforeRequest", (event) => {
  if (document.hidden) event.preventDefault();
});
const lost = document.getElementById("lost");
for (const name of ["htmx:sendError", "htmx:timeout"]) document.body.addEventListener(name, () => { lost.hidden = false; });
document.body.addEventListener("htmx:afterRequest", (event) => { if (event.detail.xhr.status > 0) lost.hidden = true; });

// -- What is wider than the page is scrolled by keys, too: it takes the focus -----------------------------------------------------
function markScrolled() {
  for (const place of document.querySelectorAll(".scroll"))
    if (place.scrollWidth > place.clientWidth) place.tabIndex = 0; else place.removeAttribute("tabindex");
}
addEventListener("resize", markScrolled);
document.body.addEventListener("htmx:afterSettle", markScrolled);
markScrolled();

// -- Confirmations: the button wakes up when the name has been typed --------------------------------------------------------
function checkConfirmations() {
  for (const input of document.querySelectorAll("input[data-confirm]"))
    input.form.querySelector("button.danger").disabled = input.value !== input.dataset.confirm;
}
document.addEventListener("input", checkConfirmations);
checkConfirmations();

// -- What was done is said once ---------------------------------------------------------------------------------------------
const done = new URLSearchParams(location.search).get("done");
if (done) {
  const note = document.createElement("p");
  note.className = "note fine";
  note.setAttribute("role", "status");
  note.textContent = `Done: ${done}`;
  document.getElementById("main").prepend(note);
  const url = new URL(location.href);
  url.searchParams.delete("done");
  history.replaceState(null, "", url);
}

// -- Keys: / to the search, g and a letter to a page -------------------------------------------------------------------------
let going = 0;
document.addEventListener("keydown", (event) => {
  if (event.target.closest("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") {
    const search = document.querySelector("[data-search]");
    if (search) { search.focus(); event.preventDefault(); }
  } else if (event.key === "g") {
    going = Date.now();
  } else if (Date.now() - going < 1000) {
    const page = { o: "/", t: "/topics", g: "/groups", s: "/schemas", b: "/tables", x: "/transactions", r: "/reassignments", a: "/access", q: "/quotas", l: "/timeline" }[event.key];
    if (page) location.assign(document.body.dataset.root + page);
  }
});

// -- Lists are filtered while one types; the address keeps the filter ------------------------------------------------------------
const TYPED_MS = 250;
let typed = 0;
async function filterList(form) {
  const asked = ++typed;
  const url = new URL(form.action);
  for (const [name, value] of new FormData(form)) if (value) url.searchParams.set(name, value);
  const response = await fetch(url, { headers: { "HX-Request": "true" } }).catch(() => null);
  if (!response?.ok || asked !== typed) return;
  const found = new DOMParser().parseFromString(await response.text(), "text/html").getElementById("live");
  if (!found || asked !== typed) return;
  const live = document.getElementById("live");
  const polling = live.parentElement;
  live.replaceWith(document.adoptNode(found));
  history.replaceState(null, "", url);
  if (polling.hasAttribute("hx-get")) { polling.setAttribute("hx-get", url.pathname + url.search); htmx.process(polling); }
}
for (const input of document.querySelectorAll("form[data-live] input")) {
  let waiting = 0;
  input.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(() => filterList(input.form), TYPED_MS); });
}

// -- Streams of records: a scan or a live tail, which ends when it is stopped or the page is left ----------------------------
const ROWS_MAX = 1000;
function startStream(place) {
  const rows = document.getElementById("rows");
  const state = document.getElementById("stream-state");
  const stop = document.getElementById("stream-stop");
  const source = new EventSource(place.dataset.stream);
  const end = (text) => { source.close(); stop.disabled = true; state.textContent = text; };
  source.addEventListener("rows", (event) => {
    const made = document.createElement("template");
    made.innerHTML = event.data; // escaped by the server, and without scripts by the policy
    if (place.dataset.newest) rows.prepend(made.content);
    else rows.append(made.content);
    while (rows.children.length > ROWS_MAX) (place.dataset.newest ? rows.lastElementChild : rows.firstElementChild).remove();
  });
  source.addEventListener("state", (event) => { state.textContent = event.data; });
  source.addEventListener("end", (event) => end(event.data));
  source.addEventListener("error", () => { if (source.readyState !== EventSource.OPEN) end("The stream has ended: the console or the cluster is away."); });
  stop.addEventListener("click", () => end(`Stopped. ${state.textContent}`));
  addEventListener("pagehide", () => source.close());
}
for (const place of document.querySelectorAll("[data-stream]")) startStream(place);
