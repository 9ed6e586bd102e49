"""Makes the two sample documents of the demo: python3 make.py FOLDER, inside an office root file system.

Meridian Tools and every figure are invented. The result is the same bytes on every run with the same library versions:
dates are fixed and the random numbers have a seed. The libraries leave out what real reports have (footnotes, tracked
changes), so those parts are written as XML here.
"""

import datetime
import io
import os
import random
import sys
import zipfile

import docx
import matplotlib
import xlsxwriter
from docx.enum.text import WD_BREAK
from docx.opc.constants import RELATIONSHIP_TYPE
from docx.opc.packuri import PackURI
from docx.opc.part import Part
from docx.oxml import OxmlElement, parse_xml
from docx.oxml.ns import nsdecls, qn
from docx.shared import Inches, Pt

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

DAY = datetime.datetime(2026, 1, 15, 9, 0, 0)
STAMP = DAY.strftime("%Y-%m-%dT%H:%M:%SZ")
REGIONS = ["North", "South", "East", "West"]
LINES = {"Hand tools": 24.5, "Power tools": 129.0, "Measuring": 46.0, "Workwear": 38.0, "Storage": 74.0}
LAST_YEAR = {"North": 1_842_300, "South": 1_406_900, "East": 1_633_250, "West": 1_958_700}
rng = random.Random(2025)


# --- the workbook ---------------------------------------------------------------------------------------------------


def orders():
    """5,000 orders of 2025, in date order, with a season and a favourite product line for each region."""
    weight = {"North": 1.05, "South": 1.12, "East": 0.94, "West": 1.01}
    start = datetime.date(2025, 1, 1)
    days = sorted(rng.randrange(365) for _ in range(5000))
    for n, day in enumerate(days, 1):
        date = start + datetime.timedelta(days=day)
        region = rng.choices(REGIONS, weights=[27, 22, 22, 29])[0]
        line = rng.choices(list(LINES), weights=[30, 22, 18, 16, 14])[0]
        season = 1.0 + (0.25 if date.month in (4, 5, 10, 11) else 0.0)
        units = max(1, round(rng.gauss(22, 7) * weight[region] * season))
        price = round(LINES[line] * rng.uniform(0.95, 1.08), 2)
        discount = rng.choice([0, 0, 0, 0.05, 0.1])
        yield f"MT-{n:05d}", date, region, line, units, price, discount


def workbook(path):
    book = xlsxwriter.Workbook(path)
    book.set_properties({"title": "Meridian Tools: orders 2025", "author": "Meridian Tools", "created": DAY})
    head = book.add_format({"bold": True, "bg_color": "#1F3A5F", "font_color": "white", "border": 1, "align": "center"})
    title = book.add_format({"bold": True, "font_size": 16, "align": "center", "valign": "vcenter", "bg_color": "#DCE6F1"})
    money = book.add_format({"num_format": "#,##0.00"})
    whole = book.add_format({"num_format": "#,##0"})
    share = book.add_format({"num_format": "0%"})
    date_format = book.add_format({"num_format": "yyyy-mm-dd"})
    summary = book.add_worksheet("Summary")
    sheet = book.add_worksheet("Orders")

    columns = ["Order", "Date", "Region", "Product line", "Units", "Unit price", "Discount", "Net revenue"]
    sheet.write_row(0, 0, columns, head)
    sheet.set_column("A:D", 14)
    sheet.set_column("E:H", 12)
    sheet.freeze_panes(1, 0)
    total = {}
    for row, (order, date, region, line, units, price, discount) in enumerate(orders(), 1):
        net = round(units * price * (1 - discount), 2)
        total[region, (date.month + 2) // 3] = total.get((region, (date.month + 2) // 3), 0) + net
        sheet.write_row(row, 0, [order])
        sheet.write_datetime(row, 1, datetime.datetime.combine(date, datetime.time()), date_format)
        sheet.write_row(row, 2, [region, line, units])
        sheet.write_number(row, 5, price, money)
        sheet.write_number(row, 6, discount, share)
        sheet.write_formula(row, 7, f"=ROUND(E{row+1}*F{row+1}*(1-G{row+1}),2)", money, net)
    sheet.autofilter(0, 0, 5000, 7)

    summary.set_column("A:A", 16)
    summary.set_column("B:H", 14)
    summary.merge_range("A1:H2", "Net revenue 2025 by region and quarter (EUR)", title)
    summary.merge_range("B3:E3", "Quarter", head)
    summary.merge_range("F3:H3", "Year", head)
    summary.write_row("A4", ["Region", "Q1", "Q2", "Q3", "Q4", "2025", "2024", "Change"], head)
    bounds = ["DATE(2025,1,1)", "DATE(2025,4,1)", "DATE(2025,7,1)", "DATE(2025,10,1)", "DATE(2026,1,1)"]
    for i, region in enumerate(REGIONS):
        row = 5 + i
        summary.write(row - 1, 0, region)
        for q in range(4):
            summary.write_formula(
                row - 1, 1 + q,
                f'=SUMIFS(Orders!$H$2:$H$5001,Orders!$C$2:$C$5001,$A{row},'
                f'Orders!$B$2:$B$5001,">="&{bounds[q]},Orders!$B$2:$B$5001,"<"&{bounds[q+1]})',
                whole, round(total[region, q + 1], 2))
        year = sum(total[region, q] for q in range(1, 5))
        summary.write_formula(row - 1, 5, f"=SUM(B{row}:E{row})", whole, round(year, 2))
        summary.write_number(row - 1, 6, LAST_YEAR[region], whole)
        summary.write_formula(row - 1, 7, f"=F{row}/G{row}-1", share, year / LAST_YEAR[region] - 1)
    summary.write(8, 0, "Total")
    for column, letter in enumerate("BCDEFG", 1):
        value = (sum(total[r, column] for r in REGIONS) if column < 5
                 else sum(total.values()) if column == 5 else sum(LAST_YEAR.values()))
        summary.write_formula(8, column, f"=SUM({letter}5:{letter}8)", whole, round(value, 2))
    summary.write_formula(8, 7, "=F9/G9-1", share, sum(total.values()) / sum(LAST_YEAR.values()) - 1)
    chart = book.add_chart({"type": "column"})
    for i, region in enumerate(REGIONS):
        chart.add_series({
            "name": ["Summary", 4 + i, 0], "categories": ["Summary", 3, 1, 3, 4], "values": ["Summary", 4 + i, 1, 4 + i, 4],
        })
    chart.set_title({"name": "Net revenue by quarter"})
    summary.insert_chart("A12", chart, {"x_scale": 1.5, "y_scale": 1.2})
    book.close()


# --- the report -----------------------------------------------------------------------------------------------------

SUBJECTS = ["The {r} region", "Our {r} depots", "Dealers in the {r}", "The {r} sales team", "Key accounts in the {r}"]
EVENTS = [
    "began the year with full shelves and a cautious order book", "shortened the time from order to dispatch by a day",
    "moved its largest customers to the new price list", "saw steady demand for {l} through the spring",
    "replaced two carriers after repeated late deliveries", "opened a counter for trade customers next to the depot",
    "returned fewer damaged parcels than in any year before", "trained every adviser in the new {l} range",
    "agreed longer payment terms with four key accounts", "consolidated three small warehouses into one",
]
RESULTS = [
    "which freed working capital in the second half", "and customers noticed the difference",
    "although the effect on margin came only in autumn", "so that stock-outs fell below two per cent",
    "while the cost per parcel stayed where it was", "in line with the plan approved in November",
    "and the lessons were taken over by the other regions", "which the board reviewed in its June meeting",
]
REMARKS = [
    "The measure continues in the coming year.", "No further investment is needed for it.",
    "A review is planned for the first quarter.", "The figures behind this are in the appendix.",
    "Comparable companies report the same pattern.", "Seasonal effects have been taken out of these figures.",
    "The works council was consulted in good time.", "Two of the three pilots were extended to the whole company.",
]


def paragraph(region=None, line=None, sentences=6):
    out = []
    for _ in range(sentences):
        r, l = region or rng.choice(REGIONS), line or rng.choice(list(LINES))
        text = f"{rng.choice(SUBJECTS)} {rng.choice(EVENTS)}, {rng.choice(RESULTS)}."
        out.append(text.format(r=r, l=l.lower()))
        if rng.random() < 0.35:
            out.append(rng.choice(REMARKS))
    return " ".join(out)


def picture(draw):
    fig, ax = plt.subplots(figsize=(6, 3), dpi=100)
    draw(ax)
    fig.tight_layout()
    out = io.BytesIO()
    fig.savefig(out, format="png", metadata={"Software": None})
    plt.close(fig)
    out.seek(0)
    return out


class Report:
    def __init__(self):
        self.doc = docx.Document()
        self.notes = []
        self.change = 100
        style = self.doc.styles["Normal"]
        style.font.name, style.font.size = "Calibri", Pt(11)

    def text(self, words, note=None):
        p = self.doc.add_paragraph(words)
        if note:
            self.footnote(p, note)
        return p

    def footnote(self, p, words):
        self.notes.append(words)
        p._p.append(parse_xml(
            f'<w:r {nsdecls("w")}><w:rPr><w:vertAlign w:val="superscript"/></w:rPr>'
            f'<w:footnoteReference w:id="{len(self.notes)}"/></w:r>'))

    def tracked(self, before, removed, added, after):
        """A paragraph with a deletion and an insertion that nobody has accepted yet."""
        p = self.doc.add_paragraph(before)
        for tag, inner, words in (("del", "delText", removed), ("ins", "t", added)):
            self.change += 1
            p._p.append(parse_xml(
                f'<w:{tag} {nsdecls("w")} w:id="{self.change}" w:author="J. Okafor" w:date="{STAMP}">'
                f'<w:r><w:{inner} xml:space="preserve">{words}</w:{inner}></w:r></w:{tag}>'))
        p.add_run(after)

    def table(self, rows, style="Light Grid Accent 1"):
        t = self.doc.add_table(rows=len(rows), cols=len(rows[0]))
        t.style = style
        for cells, values in zip(t.rows, rows):
            for cell, value in zip(cells.cells, values):
                cell.text = value
        self.doc.add_paragraph()
        return t

    def figure(self, draw, caption):
        self.doc.add_picture(picture(draw), width=Inches(5.8))
        self.doc.add_paragraph(caption, style="Caption")

    def header(self):
        section = self.doc.sections[0]
        section.header.paragraphs[0].text = "Meridian Tools\tAnnual report 2025\tDraft for the board"
        p = section.footer.paragraphs[0]
        p.add_run("Page ")
        for kind, words in (("begin", None), (None, "PAGE"), ("end", None)):
            run = OxmlElement("w:r")
            if kind:
                el = OxmlElement("w:fldChar")
                el.set(qn("w:fldCharType"), kind)
            else:
                el = OxmlElement("w:instrText")
                el.text = words
            run.append(el)
            p._p.append(run)

    def save(self, path):
        part = Part(
            PackURI("/word/footnotes.xml"),
            "application/vnd.openxmlformats-officedocument.wordprocessingml.footnotes+xml",
            self.footnotes().encode(), self.doc.part.package)
        self.doc.part.relate_to(part, RELATIONSHIP_TYPE.FOOTNOTES)
        props = self.doc.core_properties
        props.title, props.author, props.last_modified_by = "Annual report 2025", "Meridian Tools", "J. Okafor"
        props.created = props.modified = DAY
        raw = io.BytesIO()
        self.doc.save(raw)
        with zipfile.ZipFile(raw) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
            for info in old.infolist():
                fixed = zipfile.ZipInfo(info.filename, DAY.timetuple()[:6])
                fixed.compress_type, fixed.external_attr = zipfile.ZIP_DEFLATED, 0o600 << 16
                new.writestr(fixed, old.read(info))

    def footnotes(self):
        out = ['<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n<w:footnotes ' + nsdecls("w") + ">"]
        for n, kind in ((-1, "separator"), (0, "continuationSeparator")):
            out.append(f'<w:footnote w:type="{kind}" w:id="{n}"><w:p><w:r><w:{kind}/></w:r></w:p></w:footnote>')
        for n, words in enumerate(self.notes, 1):
            out.append(
                f'<w:footnote w:id="{n}"><w:p><w:r><w:rPr><w:vertAlign w:val="superscript"/></w:rPr><w:footnoteRef/></w:r>'
                f'<w:r><w:t xml:space="preserve"> {words}</w:t></w:r></w:p></w:footnote>')
        return "".join(out) + "</w:footnotes>"


def front(r):
    r.header()
    r.doc.add_heading("Annual report 2025", 0)
    r.text("Meridian Tools Ltd. Draft of 15 January 2026 for the board meeting in February.")
    r.text("The figures for 2025 are in the workbook orders-2025.xlsx; the regional table in section 3 is still to be filled.")
    r.doc.paragraphs[-1].runs[-1].add_break(WD_BREAK.PAGE)


def body(r):
    r.doc.add_heading("1 Introduction", 1)
    r.text(paragraph(), "Unless stated otherwise, all amounts are in euro and exclude value added tax.")
    r.tracked("The board expects growth of ", "three", "five", " per cent in the year after this report.")
    for _ in range(4):
        r.text(paragraph())
    r.doc.add_heading("2 Market", 1)
    for line in LINES:
        r.doc.add_heading(f"2.{list(LINES).index(line) + 1} {line}", 2)
        r.text(paragraph(line=line), f"Market estimates for {line.lower()} come from the trade association, edition 2025.")
        r.text(paragraph(line=line, sentences=8))
        r.text(paragraph(line=line, sentences=7))
    r.figure(lambda ax: (ax.bar(list(LINES), [31, 44, 18, 12, 20], color="#1F3A5F"), ax.set_ylabel("million EUR")),
             "Figure 1: size of the market by product line, 2024")
    r.doc.add_heading("3 Regional results", 1)
    r.text("Net revenue by region. The column for 2025 is filled when the books are closed.",
           "Orders are counted in the month of the invoice.")
    r.table([["Region", "2024 (EUR)", "2025 (EUR)", "Change"]]
            + [[n, f"{LAST_YEAR[n]:,}", "pending", "pending"] for n in REGIONS]
            + [["Total", f"{sum(LAST_YEAR.values()):,}", "pending", "pending"]])
    for i, region in enumerate(REGIONS, 1):
        r.doc.add_heading(f"3.{i} {region}", 2)
        for _ in range(5):
            r.text(paragraph(region=region, sentences=7))
        r.figure(lambda ax: ax.plot(range(1, 13), [rng.randrange(90, 190) for _ in range(12)], marker="o", color="#B5651D"),
                 f"Figure {i + 1}: parcels per working day in the {region}, January to December 2024")
    r.tracked("Sickness leave fell to ", "4.1", "3.8", " per cent, the lowest value since records began.")


CHAPTERS = ["4 Operations", "5 Purchasing", "6 Customers", "7 People", "8 Sustainability", "9 Information systems",
            "10 Risks", "11 Outlook"]


def rest(r):
    for chapter in CHAPTERS:
        r.doc.add_heading(chapter, 1)
        for i in range(1, 4):
            r.doc.add_heading(f"{chapter.split()[0]}.{i} {rng.choice(list(LINES))}: {rng.choice(['plan', 'result', 'review'])}", 2)
            for _ in range(3):
                r.text(paragraph(sentences=rng.choice([6, 7])))
        r.table([["Measure", "Owner", "Due", "State"]] + [
            [f"{chapter.split(' ', 1)[1]} {n}", rng.choice(["Okafor", "Lindqvist", "Marek", "Tanaka"]),
             f"2026-{rng.randrange(1, 13):02d}", rng.choice(["open", "running", "done"])] for n in range(1, 6)])
    r.tracked("The budget for training is ", "unchanged", "raised by 40,000 euro", ".")
    r.doc.add_heading("Appendix: parcels by month and depot", 1)
    for month in range(1, 13):
        r.doc.add_heading(datetime.date(2024, month, 1).strftime("%B 2024"), 2)
        r.table([["Depot", "Parcels", "Late", "Damaged"]] + [
            [f"{region} {n}", f"{rng.randrange(900, 4200):,}", str(rng.randrange(4, 60)), str(rng.randrange(0, 15))]
            for region in REGIONS for n in (1, 2)])


def report(path):
    r = Report()
    front(r)
    body(r)
    rest(r)
    r.save(path)


if __name__ == "__main__":
    folder = sys.argv[1]
    workbook(os.path.join(folder, "orders-2025.xlsx"))
    report(os.path.join(folder, "annual-report.docx"))
