// <live-chart what="records" of="topic" unit="bytes">: a chart of the console's window of samples. It is drawn in a shadow root, so
// that replacing the page around it does not touch it.
"use strict";
const PERIOD_MS = 5000;
const HEIGHT = 150;
const COLOURS = {
  light: ["#0b5cad", "#b3471d", "#1f7a3f", "#7a3fa8", "#8a6200", "#00737a"],
  dark: ["#7ab7ff", "#ffb084", "#7fd69b", "#cfa5f5", "#e6c35c", "#6fd3da"],
};

function isDark() {
  const theme = document.documentElement.dataset.theme;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function bytes(value) {
  let number = value;
  for (const unit of ["B", "KB", "MB", "GB", "TB"]) {
    if (number < 1000 || unit === "TB") return `${number < 10 && unit !== "B" ? number.toFixed(1) : Math.round(number)} ${unit}`;
    number /= 1024;
  }
}

function short(value) {
  const size = Math.abs(value);
  if (size >= 1e9) return `${+(value / 1e9).toFixed(1)}G`;
  if (size >= 1e6) return `${+(value / 1e6).toFixed(1)}M`;
  if (size >= 1e4) return `${+(value / 1e3).toFixed(1)}k`;
  return `${+value.toFixed(size < 10 ? 1 : 0)}`;
}

function clock(value, splits) {
  const exact = splits.length > 1 && splits[1] - splits[0] < 60;
  return new Date(value * 1000).toLocaleTimeString([], { timeZone: "UTC", hour: "2-digit", minute: "2-digit", second: exact ? "2-digit" : undefined, hour12: false });
}

class LiveChart extends HTMLElement {
  connectedCallback() {
    if (!this.shadowRoot) {
      const root = this.attachShadow({ mode: "open" });
      for (const file of ["/static/vendor/uplot.min.css", "/static/chart.css"]) {
        const link = document.createElement("link");
        link.rel = "stylesheet";
        link.href = file;
        root.append(link);
      }
      this.place = document.createElement("div");
      this.note = document.createElement("p");
      this.note.textContent = "no samples yet";
      this.names = document.createElement("div");
      this.names.className = "names";
      root.append(this.place, this.names, this.note);
    }
    this.shown = "";
    this.load();
    this.timer = setInterval(() => document.hidden || this.load(), PERIOD_MS);
    this.sizes = new ResizeObserver(() => this.plot && this.plot.setSize({ width: this.clientWidth, height: HEIGHT }));
    this.sizes.observe(this);
    this.themed = () => { this.shown = ""; this.load(); };
    addEventListener("themechange", this.themed);
  }

  disconnectedCallback() {
    clearInterval(this.timer);
    this.sizes.disconnect();
    removeEventListener("themechange", this.themed);
  }

  async load() {
    const fields = new URLSearchParams({ what: this.getAttribute("what"), of: this.getAttribute("of") || "" });
    let found;
    try {
      const response = await fetch(`${document.body.dataset.root}/chart?${fields}`, { headers: { "X-Chart": "1" } });
      found = response.ok ? await response.json() : null;
    } catch { return; }
    if (!found) return;
    const names = Object.keys(found.series);
    this.note.hidden = names.length > 0 && found.times.length > 1;
    if (!this.note.hidden) return;
    const data = [found.times, ...names.map((name) => found.series[name])];
    const shape = names.join("\n");
    if (this.plot && this.shown === shape) this.plot.setData(data);
    else this.draw(names, data, shape);
    this.setAttribute("role", "img");
    const last = names.map((name) => `${name}: ${this.text(found.series[name].findLast((value) => value !== null) ?? 0)}`);
    this.setAttribute("aria-label", last.join(", "));
  }

  text(value) {
    return this.getAttribute("unit") === "bytes" ? bytes(value) : short(value);
  }

  draw(names, data, shape) {
    if (this.plot) this.plot.destroy();
    const dark = isDark();
    const colours = COLOURS[dark ? "dark" : "light"];
    const axis = { stroke: dark ? "#a3adbd" : "#566072", grid: { stroke: dark ? "#2a3341" : "#e6e9ef", width: 1 }, ticks: { show: false } };
    const series = names.map((label, index) => ({
      label, stroke: colours[index % colours.length], width: 1.6, spanGaps: false, points: { show: false },
      fill: names.length === 1 ? colours[0] + "22" : undefined,
      value: (plot, value) => (value === null || value === undefined ? "–" : this.text(value)),
    }));
    const options = {
      width: this.clientWidth || 300, height: HEIGHT,
      legend: { show: false },
      cursor: { points: { size: 6 }, drag: { x: false, y: false } },
      scales: { y: { range: (plot, low, high) => [0, Math.max(high * 1.1, 1)] } },
      axes: [{ ...axis, space: 80, size: 30, values: (plot, splits) => splits.map((value) => clock(value, splits)) }, { ...axis, size: 56, values: (plot, splits) => splits.map((value) => this.text(value)) }],
      series: [{ value: (plot, value) => (value ? new Date(value * 1000).toLocaleTimeString([], { timeZone: "UTC" }) : "–") }, ...series],
    };
    this.plot = new uPlot(options, data, this.place);
    this.shown = shape;
    const zone = Object.assign(document.createElement("span"), { className: "zone", textContent: "time in UTC" });
    this.names.replaceChildren(...(names.length > 1 ? names : []).map((label, index) => {
      const name = document.createElement("span");
      const swatch = document.createElement("i");
      swatch.style.background = colours[index % colours.length];
      name.append(swatch, label);
      return name;
    }), zone);
  }
}
customElements.define("live-chart", LiveChart);
