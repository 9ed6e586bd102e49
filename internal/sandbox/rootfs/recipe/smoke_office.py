"""Every library imports and a document goes all the way: workbook, chart, text document, PDF, text, slide."""
import importlib
import os
import subprocess

import docx
import matplotlib.pyplot as plt

os.chdir("/workspace")
plt.plot([1, 2])
plt.savefig("c.png")
d = docx.Document()
d.add_heading("Smoke check")
d.add_picture("c.png")
d.save("t.docx")
# It takes a while and one processor, so the libraries are imported meanwhile.
soffice = subprocess.Popen(["soffice", "--headless", "--convert-to", "pdf", "t.docx"])

for module in ("bs4 cairo dateutil defusedxml docx html5lib img2pdf jinja2 joblib lxml.etree markdown "
               "matplotlib.pyplot mpl_toolkits.mplot3d mpmath numpy.testing odf openpyxl pandas.testing pdfminer.high_level pikepdf PIL.Image pymupdf pypdf pytz "
               "reportlab.pdfgen.canvas scipy.stats scipy.optimize scipy.signal seaborn sklearn.ensemble sklearn.linear_model "
               "statsmodels.api statsmodels.formula.api sympy tabulate tqdm "
               "xlrd xlsxwriter yaml").split():
    importlib.import_module(module)

import pandas as pd

pd.DataFrame({"a": [1, 2], "b": [3, 4]}).to_excel("t.xlsx", index=False)
assert pd.read_excel("t.xlsx")["b"].sum() == 7
for name, text in (("s.cjs", "const P = require('pptxgenjs');"), ("s.mjs", "import P from 'pptxgenjs';")):
    with open(name, "w") as f:
        f.write(text + "const p = new P(); p.addSlide().addText('hi', {x: 1, y: 1}); p.writeFile({fileName: 's.pptx'});")
    subprocess.run(["node", name], check=True)
subprocess.run(["unzip", "-tq", "s.pptx"], check=True, stdout=subprocess.DEVNULL)

assert soffice.wait(timeout=240) == 0, "soffice failed"
assert "Smoke check" in subprocess.run(["pdftotext", "t.pdf", "-"], check=True, capture_output=True, text=True).stdout
subprocess.run(["qpdf", "--check", "t.pdf"], check=True, stdout=subprocess.DEVNULL)
