/* SPDX-License-Identifier: Apache-2.0 */
/* How sparse the attention output becomes by the gate: before it, after it, and with the mean gate score
 * alone. */
const THRESHOLDS = [
    ["0.01", "< 0.01"],
    ["0.001", "< 0.001"],
];

function sparsitySection(study) {
    return section(
        "sparsity",
        "Sparsity of the attention output",
        "Share of single values of the attention output (before the output projection) that are " +
            "nearly zero. The control multiplies by the mean gate score alone: what it leaves below " +
            "the threshold is shrinking, what goes beyond it is selection by the gate.",
        sparsityByArm(study),
        sparsityByLayer(study),
        meanOutput(study),
    );
}

function sparsityByArm(study) {
    return figure({
        id: "fig-sparsity",
        wide: true,
        title: "Nearly zero attention outputs, before and after the gate",
        caption: "○ before the gate, | mean gate only (control), ● after the gate; mean over seeds.",
        controls: [
            selectControl("layer", "Layer", layerOptions(study, {label: "mean over layers", value: "mean"})),
        ],
        draw: (host, fig) => {
            const arms = shownArms(study);
            const of = (arm, key) =>
                mean(
                    countedRuns(arm).map((run) =>
                        overLayers(run, fig.values.layer, (layer) => number(layer, "sparsity", key)),
                    ),
                );
            const panels = THRESHOLDS.map(([t, name]) => ({
                title: "|value| " + name,
                unit: "share of values",
                zero: true,
                join: true,
                marks: arms.map((arm) => [
                    {value: of(arm, "before_" + t), kind: "ring"},
                    {value: of(arm, "control_" + t), kind: "tick"},
                    {value: of(arm, "after_" + t), kind: "circle"},
                ]),
            }));
            if (!panels.some((p) => p.marks.flat().some((m) => isNumber(m.value))))
                return {empty: whyNoRuns(study, "sparsity")};
            dotRows(
                host,
                armRows(arms),
                panels,
                "Share of attention outputs below two thresholds, before the gate, with the mean " +
                    "gate, and after the gate",
            );
            return {
                legend: [
                    {label: "before the gate", mark: "ring"},
                    {label: "control: mean gate only", mark: "tick"},
                    {label: "after the gate", mark: "circle"},
                ],
                csv: [["arm", "threshold", "before", "control", "after"]].concat(
                    panels.flatMap((p, t) =>
                        arms.map((arm, i) =>
                            [arm.name, THRESHOLDS[t][0]].concat(p.marks[i].map((m) => m.value)),
                        ),
                    ),
                ),
            };
        },
    });
}

function sparsityByLayer(study) {
    const stages = [
        ["before", "Before the gate"],
        ["control", "Mean gate only (control)"],
        ["after", "After the gate"],
    ];
    return figure({
        id: "fig-sparsity-layer",
        wide: true,
        title: "Nearly zero attention outputs by layer",
        caption: "Share of values below the threshold; the three panels share their axis.",
        controls: [
            selectControl(
                "t",
                "Threshold",
                THRESHOLDS.map(([value, label]) => ({value, label})),
            ),
        ],
        draw: (host, fig) => {
            const arms = shownArms(study);
            const box = el("div", {class: "multiples three"});
            const rows = [["series", "kind", "layer", "share", "stage"]];
            const all = stages.map(([key, title]) => ({
                title,
                series: armSeries(
                    arms,
                    (run) => layerPoints(run, (layer) => number(layer, "sparsity", key + "_" + fig.values.t)),
                    {dots: study.layers <= 12},
                ),
            }));
            const top = largest(all.flatMap((s) => s.series.flatMap((x) => x.points.map((p) => p.y))));
            if (top === null) return {empty: whyNoRuns(study, "sparsity")};
            const step = top > 0 ? niceStep(top, 5) : 1;
            const roof = step * Math.ceil((top * 1.02) / step) || 1;
            host.append(box);
            for (const {title, series} of all) {
                rows.push(
                    ...seriesCsv(series, "layer", "share")
                        .slice(1)
                        .map((row) => [...row, title]),
                );
                linePlot(box, fig, {
                    title,
                    label: "Sparsity by layer",
                    height: 230,
                    series,
                    x: {label: "layer", integer: true},
                    y: {label: "share of values", min: 0, max: roof, format: percent, tick: percentTick},
                });
            }
            return {
                legend: armLegend(
                    arms,
                    all.flatMap((s) => s.series),
                ),
                csv: rows,
            };
        },
    });
}

function meanOutput(study) {
    return multiples(study, {
        id: "fig-mean-output",
        title: "Mean size of the attention output by layer",
        y: "mean |value|",
        format: (v) => significant(v, 3),
        caption: "Mean absolute value over tokens, heads and channels.",
        parts: [
            ["mean_abs_before", "Before the gate"],
            ["mean_abs_after", "After the gate"],
        ].map(([key, title]) => ({title, pick: (layer) => number(layer, "sparsity", key)})),
    });
}
