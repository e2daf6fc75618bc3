/* SPDX-License-Identifier: Apache-2.0 */
/* Gate scores and what they do to the attention output; experts. */
const hasGates = (page) => page.items.some(isGatedModel);
const hasSparsity = (page) =>
    page.items.some((m) => m.layers.some((l) => number(l, "sparsity", "before_0.01") !== null));

function gatesSection(page) {
    return section(
        "gates",
        "Gate scores",
        "The factor on each attention output: 0 closes it, 1 lets it through.",
        gateHistogram(page),
        gateRange(page),
        byLayerFigure(page, {
            id: "fig-gate-below",
            wide: true,
            title: "Nearly closed gates",
            caption: "Share of scores below the threshold.",
            controls: [
                selectControl("t", "Below", [
                    {label: "0.1", value: "below_0.1"},
                    {label: "0.5", value: "below_0.5"},
                ]),
            ],
            only: isGatedModel,
            pick: (l, v) => number(l, "gate", v.t),
            y: "share of scores",
            format: share,
        }),
    );
}

/* Counts of a layer, of all layers, or of one head. */
function histogramCounts(m, layer, head) {
    const layers = layer === "all" ? m.layers : [m.layers[layer]];
    const sum = new Array(20).fill(0);
    for (const l of layers)
        (head === "all" ? list(l, "gate", "hist") : list(l, "gate", "heads_hist", head)).forEach((n, i) => (sum[i] += n));
    return sum;
}

function gateHistogram(page) {
    const models = page.items.filter(isGatedModel);
    const heads = largest(models.map((m) => largest(m.layers.map((l) => list(l, "gate", "heads_mean").length)))) || 0;
    return figure({
        id: "fig-gate-histogram",
        wide: true,
        title: "Distribution of gate scores",
        caption: "Share of the scores in each twentieth of 0 to 1. Dashed: the mean.",
        controls: [
            selectControl("layer", "Layer", layerChoices(page, {label: "all layers", value: "all"}), "all"),
            selectControl(
                "head",
                "Head",
                [{label: "all heads", value: "all"}].concat(
                    Array.from({length: heads}, (_, h) => ({label: "head " + h, value: h})),
                ),
                "all",
            ),
            checkControl("log", "log scale", false),
        ],
        draw: (host, fig) => {
            const shown = shownModels(page).filter(isGatedModel);
            const series = shown
                .map((m) => {
                    const counts = histogramCounts(m, fig.values.layer, fig.values.head);
                    const total = counts.reduce((a, b) => a + b, 0);
                    const ys = counts.map((n) => n / total);
                    const points = ys.map((y, i) => ({x: (i + 0.5) / 20, y}));
                    return {
                        label: m.name,
                        style: m.style,
                        stepped: "middle",
                        total,
                        points: [{x: 0, y: ys[0]}, ...points, {x: 1, y: ys[19]}],
                    };
                })
                .filter((s) => s.total > 0);
            if (!series.length) return {empty: "no score lies in 0 to 1 here"};
            const one = shown.length === 1 && fig.values.head === "all";
            const at = one
                ? fig.values.layer === "all"
                    ? number(shown[0].raw, "inspect", "gate_mean")
                    : number(shown[0].layers[fig.values.layer], "gate", "mean")
                : null;
            linePlot(host, fig, {
                label: "Histogram of gate scores",
                series,
                marks: at === null ? [] : [{x: at, label: "mean " + share(at)}],
                x: {label: "gate score", min: 0, max: 1, names: bare},
                y: {label: "share of scores", log: fig.values.log, zero: true, format: share},
            });
            return {legend: modelLegend(shown), csv: seriesCsv(series, "gate score", "share of scores")};
        },
    });
}

function gateRange(page) {
    const models = page.items.filter(isGatedModel);
    return figure({
        id: "fig-gate-layer",
        wide: true,
        title: "Gate scores by layer",
        caption: "Mean, mean ± standard deviation, quantiles, smallest and largest score of every layer.",
        controls: [selectControl("model", "Model", modelOptions(models), models[0] && models[0].index)],
        draw: (host, fig) => {
            const m = page.items[fig.values.model];
            if (!m) return {empty: "no model has a gate"};
            const quantile = (i) => (l) => list(l, "gate", "quantiles")[i];
            const curve = (label, i, pick, dash) => ({label, style: seriesStyle(i), dash, points: byLayer(m, pick)});
            const moment = (sign) => (l) =>
                number(l, "gate", "mean") === null ? null : l.gate.mean + sign * l.gate.std;
            const series = [
                curve("mean", 1, (l) => number(l, "gate", "mean")),
                curve("mean + sd", 1, moment(1), [4, 3]),
                curve("mean − sd", 1, moment(-1), [4, 3]),
                curve("median", 2, quantile(3)),
                curve("5 %", 3, quantile(1)),
                curve("95 %", 3, quantile(5)),
                curve("smallest", 0, (l) => number(l, "gate", "min"), [2, 3]),
                curve("largest", 0, (l) => number(l, "gate", "max"), [2, 3]),
            ].filter((s) => s.points.some((p) => isNumber(p.y)));
            if (!series.length) return {empty: "no gate scores were measured"};
            linePlot(host, fig, {
                label: "Gate scores by layer",
                series,
                x: {label: "layer", integer: true},
                y: {label: "gate score", zero: true, format: share},
            });
            return {
                legend: series.map((s) => ({label: s.label, style: s.style, dash: s.dash})),
                csv: seriesCsv(series, "layer", "gate score"),
            };
        },
    });
}

function sparsitySection(page) {
    return section(
        "sparsity",
        "Sparsity of the attention output",
        "Share of single values of the attention output that are nearly zero: before the gate, behind it, and before it " +
            "times the layer's mean score (control: what a constant gate would do).",
        sparsityFigure(page),
        byLayerFigure(page, {
            id: "fig-mean-output",
            wide: true,
            title: "Mean size of the attention output",
            controls: [
                selectControl("where", "Where", [
                    {label: "behind the gate", value: "mean_abs_after"},
                    {label: "before the gate", value: "mean_abs_before"},
                ]),
            ],
            pick: (l, v) => number(l, "sparsity", v.where),
            y: "mean |y|",
        }),
    );
}

function sparsityFigure(page) {
    return figure({
        id: "fig-sparsity",
        wide: true,
        title: "Nearly zero attention outputs by layer",
        controls: [
            selectControl("t", "Threshold", [
                {label: "0.01", value: "0.01"},
                {label: "0.001", value: "0.001"},
            ]),
        ],
        draw: (host, fig) => {
            const models = shownModels(page);
            const places = models.some(isGatedModel)
                ? [
                      ["before_", "Before the gate"],
                      ["control_", "Mean gate only"],
                      ["after_", "Behind the gate"],
                  ]
                : [["after_", "Attention output"]];
            return layerPanels(host, fig, {
                models,
                panels: places.map(([key, title]) => ({
                    title,
                    label: title + ": share of small values by layer",
                    series: modelSeries(models, (l) => number(l, "sparsity", key + fig.values.t)),
                })),
                y: {label: "share below " + fig.values.t, zero: true, max: 1, format: share},
                three: true,
                what: "where",
                value: "share",
                why: "sparsity was not measured",
            });
        },
    });
}

/* ---- experts ---- */

const hasExperts = (page) => page.items.some((m) => m.layers.some((l) => get(l, "router")));

function expertsSection(page) {
    return section(
        "experts",
        "Experts",
        "How the routers of expert layers share out the tokens.",
        byLayerFigure(page, {
            id: "fig-router",
            wide: true,
            title: "Routers by layer",
            controls: [
                selectControl("what", "Show", [
                    {label: "entropy, of an undecided router's", value: "entropy"},
                    {label: "largest load, of an even share", value: "max_load"},
                    {label: "experts without a token", value: "dead"},
                ]),
            ],
            pick: (l, v) => number(l, "router", v.what),
            y: "router",
        }),
        figure({
            id: "fig-load",
            wide: true,
            title: "Load of every expert",
            caption: "Share of the layer's selections, times the number of experts: 1 is an even share.",
            draw: (host, fig) => {
                const models = shownModels(page).filter((m) => m.layers.some((l) => get(l, "router")));
                const panels = models.map((m) =>
                    gridPanel(m, (l) => list(l, "router", "load").map((v, _, all) => v * all.length)),
                );
                if (!panels.length) return {empty: "no model with experts is shown"};
                const max = largest(panels.flatMap((p) => p.values.flat())) || 1;
                heatGrid(host, fig, {
                    panels,
                    base: 0,
                    tall: true,
                    rowName: "",
                    colName: "",
                    colWord: "expert",
                    max,
                    label: "Load by layer and expert",
                    reference: {value: 1, label: "even"},
                });
                return {csv: gridCsv(panels, "expert", "load")};
            },
        }),
    );
}

/* ---- linear attention ---- */

const hasDelta = (page) => page.items.some((m) => m.layers.some((l) => get(l, "delta")));

function deltaSection(page) {
    return section(
        "delta",
        "Linear attention",
        "Layers of the gated delta rule keep a state in place of keys. Decay: what is left of it after one token; " +
            "write strength: how much of the old value a new one replaces.",
        deltaByLayer(page),
        deltaByHead(page),
    );
}

function deltaByLayer(page) {
    return figure({
        id: "fig-delta-layer",
        wide: true,
        title: "Decay and write strength by layer",
        caption: "Means over tokens and heads; dashed: smallest and largest.",
        draw: (host, fig) => {
            const models = shownModels(page).filter((m) => m.layers.some((l) => get(l, "delta")));
            const curve = (key, dash) =>
                modelSeries(models, (l) => number(l, "delta", key)).map((s) => ({...s, dash, dots: true}));
            const panel = (key, title) => ({
                title,
                label: title + " by layer",
                series: [...curve(key), ...curve(key + "_min", [4, 3]), ...curve(key + "_max", [4, 3])],
                y: {label: title.toLowerCase(), zero: true, format: share},
            });
            return layerPanels(host, fig, {
                models,
                panels: [panel("decay", "Decay"), panel("beta", "Write strength")],
                what: "what",
                value: "value",
                why: "no model with linear attention is shown",
            });
        },
    });
}

function deltaByHead(page) {
    return figure({
        id: "fig-delta-heads",
        wide: true,
        title: "Every state",
        controls: [
            selectControl("what", "Show", [
                {label: "decay", value: "decay"},
                {label: "write strength", value: "beta"},
            ]),
        ],
        draw: (host, fig) => {
            const models = shownModels(page).filter((m) => m.layers.some((l) => get(l, "delta")));
            const panels = models.map((m) => gridPanel(m, (l) => list(l, "delta", fig.values.what + "_heads")));
            if (!panels.length) return {empty: "no model with linear attention is shown"};
            heatGrid(host, fig, {
                panels,
                base: 0,
                tall: true,
                rowName: "",
                colName: "",
                max: fig.values.what === "beta" ? largest(panels.flatMap((p) => p.values.flat())) || 1 : 1,
                label: "Mean " + fig.values.what + " by layer and head",
                format: (v) => fixed(v, 2),
                read: (v) => significant(v, 4),
            });
            return {csv: gridCsv(panels, "head", fig.values.what)};
        },
    });
}
