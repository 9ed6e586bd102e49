package demo

import (
	"archive/zip"
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Comparison says how a Word document differs from an earlier version of itself.
type Comparison struct {
	// Equal counts the parts of the package that have the same bytes; the others are named.
	Equal                   int
	Changed, Added, Removed []string
	// KeptBlocks counts the paragraphs and tables of the body that are the same bytes in the same order.
	KeptBlocks int
	// NewBlocks are the blocks that only the later version has, OldBlocks those that only the earlier one has. A changed
	// block is in both.
	NewBlocks, OldBlocks []Block
}

// Block is a paragraph, table or section mark of a document's body.
type Block struct {
	// Kind is the XML name: p, tbl, sectPr.
	Kind string
	// Text is what a reader sees, cells and runs joined by spaces.
	Text string
	// Picture says that it shows one.
	Picture bool
	raw     string
}

const documentPart = "word/document.xml"

// Compare reads two versions of a Word document.
func Compare(before, after []byte) (*Comparison, error) {
	was, err := parts(before)
	if err != nil {
		return nil, fmt.Errorf("original document: %w", err)
	}
	is, err := parts(after)
	if err != nil {
		return nil, fmt.Errorf("edited document: %w", err)
	}
	c := &Comparison{}
	for name, old := range was {
		switch now, ok := is[name]; {
		case !ok:
			c.Removed = append(c.Removed, name)
		case bytes.Equal(old, now):
			c.Equal++
		default:
			c.Changed = append(c.Changed, name)
		}
	}
	for name := range is {
		if _, ok := was[name]; !ok {
			c.Added = append(c.Added, name)
		}
	}
	slices.Sort(c.Changed)
	slices.Sort(c.Added)
	slices.Sort(c.Removed)
	return c, c.blocks(was[documentPart], is[documentPart])
}

func (c *Comparison) blocks(before, after []byte) error {
	old, err := body(before)
	if err != nil {
		return fmt.Errorf("original document: %w", err)
	}
	now, err := body(after)
	if err != nil {
		return fmt.Errorf("edited document: %w", err)
	}
	for _, step := range align(old, now) {
		switch {
		case step.old < 0:
			c.NewBlocks = append(c.NewBlocks, now[step.now])
		case step.now < 0:
			c.OldBlocks = append(c.OldBlocks, old[step.old])
		default:
			c.KeptBlocks++
		}
	}
	return nil
}

// maxPart is far above any part of a sample: what comes back is the work of a model and gets no trust.
const maxPart = 64 << 20

func parts(document []byte) (map[string][]byte, error) {
	z, err := zip.NewReader(bytes.NewReader(document), int64(len(document)))
	if err != nil {
		return nil, err
	}
	all := map[string][]byte{}
	for _, f := range z.File {
		if _, twice := all[f.Name]; twice {
			return nil, fmt.Errorf("part %s is there twice", f.Name)
		}
		r, err := f.Open()
		if err != nil {
			return nil, fmt.Errorf("part %s: %w", f.Name, err)
		}
		b, err := io.ReadAll(io.LimitReader(r, maxPart))
		if err := errors.Join(err, r.Close()); err != nil {
			return nil, fmt.Errorf("part %s: %w", f.Name, err)
		}
		all[f.Name] = b
	}
	return all, nil
}

// body cuts document.xml into the children of w:body.
func body(document []byte) ([]Block, error) {
	d := xml.NewDecoder(bytes.NewReader(document))
	var blocks []Block
	depth, start := 0, int64(0)
	var b Block
	var words []string
	for {
		at := d.InputOffset()
		t, err := d.Token()
		if errors.Is(err, io.EOF) {
			return blocks, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", documentPart, err)
		}
		switch t := t.(type) {
		case xml.StartElement:
			if depth++; depth == 3 { // document, body, block
				b, words, start = Block{Kind: t.Name.Local}, nil, at
			}
			b.Picture = b.Picture || t.Name.Local == "drawing"
		case xml.EndElement:
			if depth == 3 {
				b.Text, b.raw = strings.Join(words, " "), string(document[start:d.InputOffset()])
				blocks = append(blocks, b)
			}
			depth--
		case xml.CharData:
			if s := strings.TrimSpace(string(t)); depth > 3 && s != "" {
				words = append(words, s)
			}
		}
	}
}

// step pairs blocks of two versions; -1 means that one side has none.
type step struct{ old, now int }

// align finds the longest common sequence. Documents have some hundred blocks, so the square table is small.
func align(old, now []Block) []step {
	longest := make([][]int, len(old)+1)
	for i := range longest {
		longest[i] = make([]int, len(now)+1)
	}
	for i, o := range slices.Backward(old) {
		for j := len(now) - 1; j >= 0; j-- {
			if o.raw == now[j].raw {
				longest[i][j] = longest[i+1][j+1] + 1
			} else {
				longest[i][j] = max(longest[i+1][j], longest[i][j+1])
			}
		}
	}
	var steps []step
	i, j := 0, 0
	for i < len(old) || j < len(now) {
		switch {
		case i < len(old) && j < len(now) && old[i].raw == now[j].raw:
			steps = append(steps, step{i, j})
			i, j = i+1, j+1
		case j == len(now) || (i < len(old) && longest[i+1][j] >= longest[i][j+1]):
			steps = append(steps, step{i, -1})
			i++
		default:
			steps = append(steps, step{-1, j})
			j++
		}
	}
	return steps
}
