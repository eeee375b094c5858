// Draws the charts and pictures of a page out of the data beside them, anew after each refresh.
"use strict";

(function () {
  const SVG = "http://www.w3.org/2000/svg";
  const charts = new WeakMap();
  const drawn = new WeakMap();

  function color(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function clock(seconds) {
    return new Date(seconds * 1000).toISOString().slice(11, 19);
  }

  function chart(data) {
    const place = document.getElementById(data.dataset.chart);
    const names = JSON.parse(data.dataset.names);
    const series = JSON.parse(data.dataset.series);
    const known = charts.get(place);
    if (known && known.names === data.dataset.names) {
      known.plot.setData(series);
      return;
    }
    if (known) {
      known.plot.destroy();
      charts.delete(place);
    }
    const axis = { stroke: color("--faint"), grid: { stroke: color("--line") }, ticks: { stroke: color("--line") } };
    const lines = names.map((_, i) => ({ stroke: color("--line-" + (i + 1)), width: 2, spanGaps: true }));
    const options = {
      width: place.clientWidth || 600,
      height: 220,
      legend: { show: false },
      cursor: { show: false },
      // By UTC, as every time on the page.
      axes: [{ ...axis, values: (_, times) => times.map(clock) }, { ...axis, label: "seconds", stroke: color("--faint") }],
      scales: { x: { range: (_, low, high) => [Math.min(low, high - 60), high] }, y: { range: (_, low, high) => [0, Math.max(1, high || 0)] } },
      series: [{}, ...lines],
    };
    charts.set(place, { names: data.dataset.names, plot: new uPlot(options, series, place) });
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", "Seconds behind the clock over time; the table below has the most");
  }

  function element(name, attributes, within) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    within.append(made);
    return made;
  }

  function picture(data) {
    const place = document.getElementById(data.dataset.picture);
    const text = data.dataset.graph;
    const { nodes, edges } = JSON.parse(text);
    const shape = JSON.stringify([nodes.map((node) => node.slice(0, 2)), edges]);
    const known = drawn.get(place);
    if (!known || known.shape !== shape) {
      drawn.set(place, { shape, groups: draw(place, nodes, edges) });
    }
    for (const [id, , kind, state, isLate] of nodes) {
      const group = drawn.get(place).groups.get(id);
      group.setAttribute("class", state + (isLate ? " late" : ""));
      group.querySelector("title").textContent = kind + (state ? ", " + state : "") + (isLate ? ", late" : "");
    }
  }

  function short(label) {
    return label.length <= 26 ? label : label.slice(0, 25) + "…";
  }

  function draw(place, nodes, edges) {
    const graph = new dagre.graphlib.Graph();
    graph.setGraph({ rankdir: "LR", nodesep: 14, ranksep: 40, marginx: 4, marginy: 4 });
    graph.setDefaultEdgeLabel(() => ({}));
    for (const [id, label] of nodes) graph.setNode(id, { width: 24 + 8 * short(label).length, height: 30 });
    for (const [below, above] of edges) graph.setEdge(below, above);
    dagre.layout(graph);
    const { width, height } = graph.graph();
    place.replaceChildren();
    const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, width, height }, place);
    for (const edge of graph.edges()) {
      const points = graph.edge(edge).points.map((point) => `${point.x},${point.y}`);
      element("path", { d: "M" + points.join("L") }, svg);
    }
    const groups = new Map();
    for (const [id, label] of nodes) {
      const { x, y, width: w, height: h } = graph.node(id);
      const group = element("g", {}, svg);
      element("title", {}, group);
      element("rect", { x: x - w / 2, y: y - h / 2, width: w, height: h, rx: 5 }, group);
      element("text", { x, y: y + 4, "text-anchor": "middle" }, group).textContent = short(label);
      groups.set(id, group);
    }
    return groups;
  }

  function refresh() {
    document.querySelectorAll(".chart-data").forEach(chart);
    document.querySelectorAll(".graph-data").forEach(picture);
  }

  document.addEventListener("htmx:after:swap", refresh);
  refresh();
})();
