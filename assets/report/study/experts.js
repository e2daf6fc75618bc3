/* SPDX-License-Identifier: Apache-2.0 */
/* Routers of mixtures of experts: how tokens are spread over experts, and how decided the routers are. */
const NO_EXPERTS = "no arm that is shown has experts with recorded routing";

const hasRouter = (run) => list(run.raw, "router", "layers").length > 0;
const hasExperts = (study) => study.arms.some((arm) => arm.runs.some(hasRouter));
const shownMixtures = (study) => shownArms(study).filter((arm) => arm.runs.some(hasRouter));

function expertsSection(study) {
    return section(
        "experts",
        "Experts",
        "Where routers send the tokens of held-out windows. A load of 1 is an even share; a dead expert " +
            "gets no token at all. Entropy is that of the router's probabilities as a share of its largest " +
            "value: 1 is undecided, 0 certain.",
        expertsTable(study),
        expertLoads(study),
        routerOverSteps(study),
    );
}

const ROUTER_COLUMNS = [
    {label: "Experts", of: (run) => number(run.raw, "router", "experts"), format: count},
    {label: "Per token", of: (run) => number(run.raw, "router", "per_token"), format: count},
    {
        label: "Entropy",
        unit: "mean over layers",
        of: (run) => number(run.raw, "router", "entropy"),
        format: (v) => fixed(v, 3),
    },
    {
        label: "Fullest expert",
        unit: "load, 1 = even",
        best: "min",
        of: (run) => number(run.raw, "router", "max_load"),
        format: (v) => fixed(v, 2),
    },
    {
        label: "Emptiest expert",
        unit: "load, 1 = even",
        best: "max",
        of: (run) => smallest(routerLayers(run).flatMap((layer) => list(layer, "load"))),
        format: (v) => fixed(v, 2),
    },
    {
        label: "Dead experts",
        unit: "all layers",
        of: (run) => number(run.raw, "router", "dead_experts"),
        format: (v) => significant(v, 3),
    },
    {
        label: "Balance loss",
        unit: "a layer, 1 = even",
        of: (run) => perLayer(run, "balance_loss"),
        format: (v) => fixed(v, 3),
    },
    {
        label: "z-loss",
        unit: "a layer",
        of: (run) => perLayer(run, "z_loss"),
        format: (v) => significant(v, 3),
    },
];

const routerLayers = (run) => list(run.raw, "router", "layers").filter(Boolean);

function perLayer(run, key) {
    const sum = number(run.raw, "router", key);
    const layers = routerLayers(run).length;
    return sum !== null && layers ? sum / layers : null;
}

function expertsTable(study) {
    const arms = study.arms.filter((arm) => arm.runs.some(hasRouter));
    return dataTable({
        id: "tab-experts",
        label: "Routers",
        columns: [{label: "Arm"}].concat(ROUTER_COLUMNS),
        rows: arms.map((arm) => ({
            name: arm.name,
            style: arm.style,
            cells: ROUTER_COLUMNS.map((c) => cellOf(countedRuns(arm).map(c.of), c.format)),
            inner: arm.runs.map((run) => ({
                name: "seed " + run.seed,
                note: run.ok ? null : run.status,
                cells: ROUTER_COLUMNS.map((c) => cellOf([c.of(run)], c.format)),
            })),
        })),
    });
}

/* One map an arm: layers upward, experts across, fullest first, since their numbers mean nothing. */
function expertLoads(study) {
    return figure({
        id: "fig-experts",
        wide: true,
        title: "Load of every expert",
        caption:
            "One map per arm, layers upward (L), experts across, sorted by load within each layer; " +
            "mean over seeds. 1 is an even share.",
        draw: (host, fig) => {
            const panels = shownMixtures(study).map((arm) => loadPanel(arm));
            if (!panels.length) return {empty: NO_EXPERTS};
            heatGrid(host, fig, {
                panels,
                upward: true,
                rowName: "L",
                colName: "E",
                max: Math.max(1, largest(panels.flatMap((p) => p.values.flat())) || 1),
                format: (v) => fixed(v, 2),
                read: (v) => fixed(v, 2) + " of an even share",
                label: "Load of every expert",
            });
            return {
                csv: [["arm", "expert by load", "layer", "load"]].concat(
                    panels.flatMap((p) =>
                        p.values.flatMap((row, r) => row.map((v, c) => [p.title, c + 1, r + 1, v])),
                    ),
                ),
            };
        },
    });
}

function loadPanel(arm) {
    const sorted = countedRuns(arm)
        .filter(hasRouter)
        .map((run) =>
            list(run.raw, "router", "layers").map((layer) =>
                list(layer, "load")
                    .filter(isNumber)
                    .sort((a, b) => b - a),
            ),
        );
    const rows = largest(sorted.map((layers) => layers.length)) || 0;
    const cols = largest(sorted.flatMap((layers) => layers.map((row) => row.length))) || 0;
    const values = Array.from({length: rows}, (_, r) =>
        Array.from({length: cols}, (__, c) => mean(sorted.map((layers) => get(layers, r, c) ?? null))),
    );
    return {title: arm.name, rows, cols, values};
}

function routerOverSteps(study) {
    const kinds = [
        {label: "entropy", value: "entropy"},
        {label: "fullest expert", value: "max_load"},
        {label: "dead experts", value: "dead_experts"},
    ];
    return figure({
        id: "fig-router-steps",
        wide: true,
        title: "Routers during training",
        caption:
            "Of single updates, at steps of training. An update has few tokens, so that an expert may get " +
            "none by chance.",
        controls: [
            selectControl("kind", "Show", kinds),
            selectControl("layer", "Layer", layerOptions(study, {label: "mean over layers", value: "mean"})),
        ],
        draw: (host, fig) => {
            const arms = shownMixtures(study);
            const kind = fig.values.kind;
            const series = armSeries(arms, (run) => routerPoints(run, kind, fig.values.layer));
            if (!series.length) return {empty: NO_EXPERTS};
            const name = kinds.find((k) => k.value === kind).label;
            linePlot(host, fig, {
                label: "Routers over training steps",
                series,
                x: {label: "step"},
                y: {label: name, zero: kind !== "entropy", format: (v) => significant(v, 3)},
            });
            return {legend: armLegend(arms, series), csv: seriesCsv(series, "step", name)};
        },
    });
}

function routerPoints(run, key, layer) {
    const values = list(run.raw, "train", "router", key);
    return list(run.raw, "train", "router", "step")
        .map((x, i) => ({
            x,
            y: layer === "mean" ? mean(list(values, i).filter(isNumber)) : (get(values, i, layer) ?? null),
        }))
        .filter((p) => isNumber(p.x));
}
