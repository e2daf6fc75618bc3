/* SPDX-License-Identifier: Apache-2.0 */
/* Attention on the first token: by layer, by head, and how it came about. */
const RANGES = [
    {label: "from T/4 on", value: "from_quarter"},
    {label: "all", value: "all"},
    {label: "without query 1", value: "from_1"},
    {label: "without queries 1 to 4", value: "from_4"},
];

function sinkSection(study) {
    return section(
        "sink",
        "First-token share",
        "How much of its attention a query gives to position 0, averaged over held-out windows. " +
            "Uniform causal attention already gives some, most of all to early queries: the dashed " +
            "line shows how much.",
        el("div", {class: "grid"}, shareByLayer(study), shareOverSteps(study)),
        shareByHead(study),
        otherKeys(study),
    );
}

function shareByLayer(study) {
    return layerFigure(study, {
        id: "fig-share-layer",
        title: "First-token share by layer",
        y: "share of attention",
        format: share,
        caption: "Mean over heads, windows and queries; 1 would be all attention on position 0.",
        lead: () => valuesInWords(shownArms(study), MEASURES.share.of, share),
        controls: [selectControl("range", "Queries", RANGES)],
        pick: (layer, values) => number(layer, "f_attn", values.range),
        marks: (values) => uniformMarks(study, values.range),
    });
}

function shareOverSteps(study) {
    return figure({
        id: "fig-share-steps",
        title: "First-token share during training",
        caption: "The same share on a fixed probe text, at steps of training.",
        controls: [
            selectControl("layer", "Layer", layerOptions(study, {label: "mean over layers", value: "mean"})),
        ],
        draw: (host, fig) => {
            const arms = shownArms(study);
            const series = armSeries(arms, (run) => probePoints(run, "first_token_share", fig.values.layer));
            if (!series.length) return {empty: whyNoRuns(study, "probes during training")};
            linePlot(host, fig, {
                label: "First-token share over training steps",
                series,
                marks: uniformMarks(study, "from_quarter"),
                x: {label: "step"},
                y: {label: "share of attention", zero: true, format: share},
            });
            return {legend: armLegend(arms, series), csv: seriesCsv(series, "step", "share")};
        },
    });
}

/* [{x: step, y}] of what was probed in training; choice: a layer's index, "mean" or "largest". */
function probePoints(run, key, choice) {
    const rows = list(run.raw, "train", key);
    const over = choice === "largest" ? largest : mean;
    return list(run.raw, "train", "probe_step")
        .slice(0, rows.length)
        .map((x, i) => {
            const row = Array.isArray(rows[i]) ? rows[i] : [];
            return {
                x,
                y: typeof choice === "number" ? (isNumber(row[choice]) ? row[choice] : null) : over(row),
            };
        })
        .filter((p) => isNumber(p.x));
}

/* layers x heads of one arm: the mean over the wanted runs, null where no run has a value. */
function headGrid(runs, rowOf) {
    const grids = runs.map((run) =>
        list(run.raw, "inspect", "layers").map((layer) => (layer ? rowOf(layer) : [])),
    );
    const rows = largest(grids.map((g) => g.length)) || 0;
    const cols = largest(grids.flatMap((g) => g.map((row) => row.length))) || 0;
    const values = Array.from({length: rows}, (_, r) =>
        Array.from({length: cols}, (_unused, c) => mean(grids.map((g) => (g[r] ? g[r][c] : null)))),
    );
    return {rows, cols, values, known: values.some((row) => row.some(isNumber))};
}

function headFigure(study, spec) {
    return figure({
        ...spec,
        wide: true,
        controls: (spec.controls || []).concat([
            selectControl(
                "seed",
                "Seed",
                [{label: "mean over seeds", value: null}].concat(seedOptions(study)),
            ),
        ]),
        draw: (host, fig) => {
            const arms = shownArms(study).filter((arm) => !spec.gatedOnly || arm.gated);
            const wanted = (run) => fig.values.seed === null || run.seed === fig.values.seed;
            const panels = arms
                .map((arm) => ({
                    title: arm.name,
                    ...headGrid(
                        (fig.values.seed === null ? countedRuns(arm) : arm.runs).filter(wanted),
                        (layer) => spec.row(layer, fig.values),
                    ),
                }))
                .filter((p) => p.known);
            if (!panels.length) return {empty: spec.why || whyNoRuns(study, "values per head")};
            const top = largest(panels.flatMap((p) => p.values.flat()));
            const missing = arms.length - panels.length;
            heatGrid(host, fig, {
                panels,
                upward: true,
                rowName: "L",
                colName: "H",
                max: spec.max ? spec.max(top) : top,
                format: (v) => fixed(v, 2),
                read: share,
                reference: spec.reference ? spec.reference(fig.values) : null,
                label: spec.title,
            });
            if (missing)
                fig.readout.textContent =
                    missing + (missing === 1 ? " arm has" : " arms have") + " no values here.";
            return {
                csv: [["arm", spec.colWord ? spec.colWord : "head", "layer", "value"]].concat(
                    panels.flatMap((p) =>
                        p.values.flatMap((row, r) => row.map((v, c) => [p.title, c + 1, r + 1, v])),
                    ),
                ),
            };
        },
    });
}

function shareByHead(study) {
    return headFigure(study, {
        id: "fig-share-head",
        title: "First-token share by layer and head",
        caption: "One map per arm, layers upward (L), heads across (H). All maps share the colours.",
        controls: [selectControl("range", "Queries", RANGES.slice(0, 2))],
        row: (layer, values) => list(layer, "f_attn_heads", values.range),
        max: (top) => Math.min(1, Math.max(0.1, Math.ceil(top * 10 - 1e-9) / 10)),
        reference: (values) => {
            const marks = uniformMarks(study, values.range);
            return marks.length === 1 ? {value: marks[0].y, label: "uniform"} : null;
        },
    });
}

function otherKeys(study) {
    return layerFigure(study, {
        id: "fig-other-keys",
        height: 220,
        title: "Largest share of any other fixed position",
        y: "share of attention",
        format: share,
        caption:
            "The largest mean share that one key position other than 0 gets. If a sink had only " +
            "moved to another position, it would show here.",
        pick: (layer) => number(layer, "max_other_key_share"),
    });
}
