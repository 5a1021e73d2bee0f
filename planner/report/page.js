"use strict";
(() => {
  const root = document.documentElement;
  const redraws = [];

  // Sorting: a click sorts rising, a second one falling; numbers by value, words by alphabet, equal rows stay.
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
      const rising = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", rising ? "ascending" : "descending");
      const key = (row) => row.cells[column].dataset.value;
      const numeric = [...table.tBodies[0].rows].every((row) => row.cells[column].classList.contains("number"));
      const compare = numeric ? (a, b) => Number(key(a)) - Number(key(b)) : (a, b) => key(a).localeCompare(key(b));
      const rows = [...table.tBodies[0].rows].sort((a, b) => (rising ? 1 : -1) * (compare(a, b) || 0));
      table.tBodies[0].append(...rows);
    }));
  }

  // Light or dark: what the system says until the button is used.
  const dark = () => root.dataset.theme ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  document.getElementById("theme").addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    redraws.forEach((draw) => draw());
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraws.forEach((draw) => draw()));

  // Printing shows what is folded away.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    opened.forEach((part) => { part.open = true; });
    redraws.forEach((draw) => draw(true));
  });
  addEventListener("afterprint", () => {
    opened.forEach((part) => { part.open = false; });
    redraws.forEach((draw) => draw());
  });

  const NAMES = ["forward", "backward", "input gradient", "weight gradient"];
  const AXIS = 30, LABEL = 64, TASK = 5;

  function pattern(context, kind, ink) {
    const tile = new OffscreenCanvas(8, 8), pen = tile.getContext("2d");
    pen.strokeStyle = pen.fillStyle = ink;
    pen.beginPath();
    if (kind === 1 || kind === 2 || kind === 4) { pen.moveTo(0, 8); pen.lineTo(8, 0); }
    if (kind === 2 || kind === 4) { pen.moveTo(0, 0); pen.lineTo(8, 8); }
    if (kind === 3) { pen.fillRect(1, 1, 2, 2); pen.fillRect(5, 5, 2, 2); }
    pen.stroke();
    return context.createPattern(tile, "repeat");
  }

  function seconds(ns) {
    if (ns >= 1e9) return (ns / 1e9).toPrecision(4) + " s";
    if (ns >= 1e6) return (ns / 1e6).toPrecision(4) + " ms";
    return (ns / 1e3).toPrecision(4) + " µs";
  }

  function roundStep(raw) {
    const power = 10 ** Math.floor(Math.log10(raw));
    return [1, 2, 5, 10].map((unit) => unit * power).find((step) => step >= raw * 0.999);
  }

  // First task of a rank that ends after the moment: ranks are sorted, so halve.
  function firstAfter(tasks, moment) {
    let low = 0, high = tasks.length / TASK;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (tasks[middle * TASK + 3] + tasks[middle * TASK + 4] < moment) low = middle + 1; else high = middle;
    }
    return low;
  }

  function timeline(figure) {
    const data = JSON.parse(figure.querySelector(".timeline-data").textContent);
    const canvas = figure.querySelector("canvas"), told = figure.querySelector(".hover");
    const context = canvas.getContext("2d");
    const height = data.ranks.length * data.row + AXIS;
    let from = 0, span = data.iteration, width = 0;

    const at = (pixel) => from + (pixel - LABEL) / (width - LABEL) * span;
    const x = (ns) => LABEL + (ns - from) / span * (width - LABEL);

    function clamp() {
      span = Math.min(Math.max(span, data.iteration / 1e5), data.iteration);
      from = Math.min(Math.max(from, 0), data.iteration - span);
      canvas.dataset.from = Math.round(from);
      canvas.dataset.span = Math.round(span);
    }

    function draw(printing) {
      const style = getComputedStyle(root);
      const value = (name) => style.getPropertyValue(name).trim();
      const light = { "--paper": "#ffffff", "--ink": "#000000", "--line": "#999999", "--hatch": "#00000073",
        "--s0": "#8fc1e8", "--s1": "#f2b65c", "--s2": "#6cc5a8", "--s3": "#e39a72", "--s7": "#c3c8ce" };
      const colour = (name) => printing === true ? light[name] : value(name);
      const ratio = devicePixelRatio || 1;
      width = canvas.clientWidth;
      canvas.width = width * ratio;
      canvas.height = height * ratio;
      canvas.style.height = height + "px";
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      context.fillStyle = colour("--paper");
      context.fillRect(0, 0, width, height);
      context.font = "11px system-ui, sans-serif";
      axis(colour);
      const fills = ["--s0", "--s1", "--s2", "--s3", "--s7"].map(colour);
      const hatches = [0, 1, 2, 3, 4].map((kind) => pattern(context, kind, colour("--hatch")));
      data.ranks.forEach((tasks, rank) => row(tasks, rank, fills, hatches, colour));
      context.fillStyle = colour("--paper");
      context.fillRect(0, 0, LABEL, height - AXIS);
      context.fillStyle = colour("--ink");
      data.ranks.forEach((_, rank) => context.fillText("stage " + rank, 6, (rank + 0.5) * data.row + 4));
    }

    function axis(colour) {
      const step = roundStep(span / 7), bottom = height - AXIS;
      context.strokeStyle = colour("--line");
      context.fillStyle = colour("--ink");
      for (let tick = Math.ceil(from / step) * step; tick <= from + span; tick += step) {
        context.beginPath();
        context.moveTo(x(tick), 0);
        context.lineTo(x(tick), bottom);
        context.stroke();
        const text = tick === 0 ? "0" : seconds(tick);
        context.fillText(text, Math.min(x(tick) - 12, width - context.measureText(text).width - 2), bottom + 18);
      }
    }

    function box(rank, start, length, kind, fills, hatches, colour) {
      const left = Math.max(x(start), LABEL), right = Math.min(x(start + length), width);
      if (right <= left) return 0;
      const top = rank * data.row + 3, tall = data.row - 6;
      context.fillStyle = fills[kind];
      context.fillRect(left, top, right - left, tall);
      if (right - left > 3) {
        if (kind) { context.fillStyle = hatches[kind]; context.fillRect(left, top, right - left, tall); }
        context.strokeStyle = colour("--ink");
        context.lineWidth = 0.6;
        context.strokeRect(left, top, right - left, tall);
      }
      return right - left;
    }

    function row(tasks, rank, fills, hatches, colour) {
      for (let i = firstAfter(tasks, from); i < tasks.length / TASK; i += 1) {
        const [kind, chunk, microbatch, start, length] = tasks.slice(i * TASK, i * TASK + TASK);
        if (start > from + span) break;
        const wide = box(rank, start, length, kind, fills, hatches, colour);
        const text = data.chunks > 1 ? microbatch + "/" + chunk : String(microbatch);
        const room = context.measureText(text).width;
        if (wide > room + 8) {
          const left = Math.max(x(start), LABEL) + (wide - room) / 2;
          context.fillStyle = fills[kind];
          context.fillRect(left - 2, rank * data.row + 8, room + 4, data.row - 16);
          context.fillStyle = colour("--ink");
          context.fillText(text, left, (rank + 0.5) * data.row + 4);
        }
      }
      const [end, finish] = data.finish[rank];
      box(rank, end, finish, 4, fills, hatches, colour);
    }

    function zoom(factor, pixel) {
      const centre = at(pixel);
      const share = (centre - from) / span;
      span *= factor;
      clamp();
      from = centre - share * span;
      clamp();
      draw();
    }

    function move(share) { from += share * span; clamp(); draw(); }
    function whole() { from = 0; span = data.iteration; clamp(); draw(); }

    function tell(event) {
      const bounds = canvas.getBoundingClientRect();
      const rank = Math.floor((event.clientY - bounds.top) / data.row);
      const moment = at(event.clientX - bounds.left), tasks = data.ranks[rank];
      told.textContent = "";
      if (!tasks || event.clientX - bounds.left < LABEL) return;
      const i = firstAfter(tasks, moment) * TASK;
      const [end, finish] = data.finish[rank];
      if (moment >= end && moment <= end + finish) {
        told.textContent = "stage " + rank + ": end of the iteration, " + seconds(finish);
      } else if (i < tasks.length && tasks[i + 3] <= moment) {
        const chunk = data.chunks > 1 ? ", chunk " + tasks[i + 1] : "";
        told.textContent = "stage " + rank + ": " + NAMES[tasks[i]] + " of micro-batch " + tasks[i + 2] + chunk
          + ", from " + seconds(tasks[i + 3]) + ", " + seconds(tasks[i + 4]);
      } else { told.textContent = "stage " + rank + ": waits at " + seconds(moment); }
    }

    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      zoom(event.deltaY < 0 ? 0.8 : 1.25, event.offsetX);
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => canvas.setPointerCapture(event.pointerId));
    canvas.addEventListener("pointermove", (event) => {
      if (event.buttons & 1) move(-event.movementX / (width - LABEL)); else tell(event);
    });
    canvas.addEventListener("pointerleave", () => { told.textContent = ""; });
    const middle = () => LABEL + (width - LABEL) / 2;
    const actions = { in: () => zoom(0.5, middle()), out: () => zoom(2, middle()), whole };
    const keys = { "+": actions.in, "-": actions.out, "0": whole, ArrowLeft: () => move(-0.2),
      ArrowRight: () => move(0.2) };
    canvas.addEventListener("keydown", (event) => {
      if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
    });
    for (const button of figure.querySelectorAll("button[data-action]")) {
      button.addEventListener("click", actions[button.dataset.action]);
    }
    addEventListener("resize", () => draw());
    redraws.push(draw);
    clamp();
    draw();
  }

  document.querySelectorAll(".timeline-figure").forEach(timeline);
})();
