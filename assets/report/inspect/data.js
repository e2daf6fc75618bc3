/* SPDX-License-Identifier: Apache-2.0 */
/* inspect.json as the sections want it. Layers, heads, positions and channels count from 0, as in the file. */

/* {raw, items, hidden, picked}; an item, one for each model that was measured: {index, name, label, raw, layers,
 * heads, step, style}. Steps of one run are named by their step. */
function makeInspection(raw) {
    const measured = list(raw, "models").filter((m) => Array.isArray(get(m, "inspect", "layers")));
    const steps = measured.length > 1 && measured.every((m) => number(m, "step") !== null);
    if (steps) measured.sort((a, b) => a.step - b.step);
    const items = measured.map((m, index) => ({
        index,
        raw: m,
        step: number(m, "step"),
        label: text(m, "path"),
        name: steps ? "step " + m.step : text(m, "name") || "model " + index,
        layers: list(m, "inspect", "layers"),
        heads: largest(list(m, "inspect", "layers").map((l) => list(l, "f_attn_heads", "from_1").length)) || 0,
        style: seriesStyle(measured.length === 1 ? 1 : index),
    }));
    return {raw, items, steps, hidden: new Set(), picked: null, follow: []};
}

const shownModels = (page) => page.items.filter((m) => !page.hidden.has(m.index));
const failedModels = (page) => list(page.raw, "models").filter((m) => text(m, "error"));
const isGatedModel = (m) => number(m.raw, "inspect", "gate_mean") !== null;
const modelLegend = (models) => models.map((m) => ({label: m.name, style: m.style}));
const modelOptions = (models) => models.map((m) => ({label: m.name, value: m.index}));
const layerCount = (page) => largest(page.items.map((m) => m.layers.length)) || 0;
const layerChoices = (page, first) =>
    (first ? [first] : []).concat(
        Array.from({length: layerCount(page)}, (_, i) => ({label: "layer " + i, value: i})),
    );

/* Uniform attention's value, once for each window length. */
function uniformLines(models, range) {
    const seen = new Map();
    for (const m of models) {
        const y = number(m.raw, "uniform_share", range);
        if (y !== null) seen.set(y, m.name);
    }
    return [...seen].map(([y, name]) => ({y, label: seen.size > 1 ? "uniform, " + plain(name, 20) : "uniform"}));
}

/* [{x: layer, y}] */
const byLayer = (m, pick) => m.layers.map((layer, x) => ({x, y: pick(layer, x)}));

function modelSeries(models, pick) {
    return models
        .map((m) => ({label: m.name, style: m.style, points: byLayer(m, pick), dots: m.layers.length <= 32}))
        .filter((s) => s.points.some((p) => isNumber(p.y)));
}

/* Curves over layers of all shown models. spec: as of a figure, with pick(layer, values) and y {label, ...}. */
function byLayerFigure(page, spec) {
    return figure({
        ...spec,
        draw: (host, fig) => {
            const models = shownModels(page).filter((m) => !spec.only || spec.only(m));
            const series = modelSeries(models, (layer) => spec.pick(layer, fig.values));
            if (!series.length) return {empty: spec.why || "no model that is shown has these values"};
            const marks = spec.marks ? spec.marks(models, fig.values).filter((m) => isNumber(m.y)) : [];
            linePlot(host, fig, {
                label: spec.title,
                series,
                marks,
                height: spec.height,
                x: {label: "layer", integer: true},
                y: {
                    label: spec.y,
                    log: fig.values.log || false,
                    zero: !fig.values.log,
                    format: spec.format || ((v) => significant(v, 4)),
                },
            });
            return {legend: modelLegend(models), csv: seriesCsv(series, "layer", spec.y)};
        },
    });
}

/* Curves over layers side by side, one plot for each of spec.panels that has any: {title, label, series, y}. What: the column of
 * their table that tells them apart; value: that of the numbers. */
function layerPanels(host, fig, spec) {
    const panels = spec.panels.filter((p) => p.series.length);
    if (!panels.length) return {empty: spec.why};
    const box = el("div", {class: spec.three ? "multiples three" : "multiples"});
    const csv = [[spec.what, "model", "kind", "layer", spec.value]];
    host.append(box);
    for (const {title, label, series, y} of panels) {
        linePlot(box, fig, {title, label, series, height: spec.height || 220, x: {label: "layer", integer: true}, y: y || spec.y});
        csv.push(...seriesCsv(series, "layer", spec.value).slice(1).map((row) => [title, ...row]));
    }
    return {legend: modelLegend(spec.models), csv};
}

/* A model as a panel of a heat map, a row for each layer; and the table behind several. */
function gridPanel(m, of) {
    const values = m.layers.map(of);
    return {title: m.name, rows: m.layers.length, cols: largest(values.map((row) => row.length)) || 1, values};
}
const gridCsv = (panels, column, value) =>
    [["model", "layer", column, value]].concat(
        panels.flatMap((p) => p.values.flatMap((row, layer) => row.map((v, at) => [p.title, layer, at, v]))),
    );

/* Mean of a measure over the heads of a layer. */
const headMean = (layer, key) => mean(list(layer, "heads", key));

/* What the layer x head map can show. */
const HEAD_MEASURES = [
    {label: "first-token share", of: (l) => list(l, "f_attn_heads", "from_1"), max: 1},
    {label: "first-token share, queries from T/4", of: (l) => list(l, "f_attn_heads", "from_quarter"), max: 1},
    {label: "entropy (of uniform attention's)", of: (l) => list(l, "heads", "entropy_share"), max: 1},
    {label: "mean distance", of: (l) => list(l, "heads", "distance")},
    {label: "weight on the token itself", of: (l) => list(l, "heads", "self"), max: 1},
    {label: "weight on the previous token", of: (l) => list(l, "heads", "previous"), max: 1},
    {label: "weight on duplicates", of: (l) => list(l, "heads", "duplicate"), max: 1},
    {label: "induction", of: (l) => list(l, "heads", "induction"), max: 1},
    {label: "weight on marked keys", of: (l) => list(l, "heads", "marked"), max: 1},
    {label: "weight on the learned sink", of: (l) => list(l, "learned_sink"), max: 1},
    {label: "mean gate score", of: (l) => list(l, "gate", "heads_mean"), max: 1},
    {label: "gate scores below 0.1", of: (l) => list(l, "gate", "heads_below_0.1"), max: 1},
];
const measuresOf = (page) =>
    HEAD_MEASURES.filter((m) => page.items.some((x) => x.layers.some((l) => m.of(l).some(isNumber)))).map(
        (m) => ({label: m.label, value: m}),
    );

/* The weights of one head, or of the mean over heads: T*T numbers with nothing above the diagonal. */
function lowerMap(packed, n) {
    const part = unpackBytes(packed, (n * (n + 1)) / 2);
    if (!part) return null;
    const map = new Float64Array(n * n);
    for (let q = 0, at = 0; q < n; q++) for (let k = 0; k <= q; k++) map[q * n + k] = part[at++];
    return map;
}

function headMap(m, layer, head) {
    const tokens = list(m.raw, "map", "tokens");
    const heads = list(m.raw, "map", "layers", layer);
    const maps = (head === "mean" ? heads : [heads[head]])
        .map((packed) => lowerMap(packed, tokens.length))
        .filter(Boolean);
    if (!maps.length) return {tokens, map: null, why: "no map of this layer and head"};
    const map = maps.length === 1 ? maps[0] : maps[0].map((_, i) => mean(maps.map((one) => one[i])));
    const gates = list(m.raw, "map", "gate", layer);
    const rows = head === "mean" || gates.length === 1 ? gates : [gates[head]];
    const strip = rows.some(Array.isArray)
        ? tokens.map((_, q) => mean(rows.map((row) => (Array.isArray(row) ? row[q] : null))))
        : null;
    return {tokens, map, strip};
}

const hasMaps = (page) => page.items.some((m) => list(m.raw, "map", "tokens").length);
