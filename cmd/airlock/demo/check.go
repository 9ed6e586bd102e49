package demo

import (
	"bytes"
	"errors"
	"fmt"
	"image/png"
	"slices"
	"strings"
)

// Heading is what the edited report must begin its new section with.
const Heading = "Executive Summary"

// CheckReport says whether an edited report has what was asked for and nothing else: the new section with its chart,
// the filled table, every other part and paragraph as it was.
func CheckReport(c *Comparison) error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if want := []string{"word/_rels/document.xml.rels", documentPart}; !slices.Equal(c.Changed, want) {
		wrong("changed parts are %q, want %q", c.Changed, want)
	}
	if want := []string{"word/media/" + Chart}; !slices.Equal(c.Added, want) {
		wrong("added parts are %q, want %q", c.Added, want)
	}
	if len(c.Removed) > 0 {
		wrong("parts are gone: %q", c.Removed)
	}
	if len(c.OldBlocks) != 1 || c.OldBlocks[0].Kind != "tbl" || !strings.Contains(c.OldBlocks[0].Text, "pending") {
		wrong("%d blocks of the original changed, want the regional table alone", len(c.OldBlocks))
	}
	heading, picture, table := false, false, false
	for _, b := range c.NewBlocks {
		heading = heading || b.Text == Heading
		picture = picture || b.Picture
		table = table || b.Kind == "tbl" && !strings.Contains(b.Text, "pending")
	}
	if !heading || !picture || !table {
		wrong("new heading: %t, new picture: %t, filled table: %t; want all three", heading, picture, table)
	}
	return errors.Join(errs...)
}

// Describe checks one of the other results by its name and says what it is.
func Describe(name string, content []byte) (string, error) {
	switch {
	case strings.HasSuffix(name, ".pdf"):
		if !bytes.HasPrefix(content, []byte("%PDF-")) || !bytes.Contains(content[max(0, len(content)-1024):], []byte("%%EOF")) {
			return "", errors.New("is no whole PDF")
		}
		return "PDF", nil
	case strings.HasSuffix(name, ".png"):
		c, err := png.DecodeConfig(bytes.NewReader(content))
		if err != nil {
			return "", fmt.Errorf("is no PNG: %w", err)
		}
		return fmt.Sprintf("PNG, %d × %d", c.Width, c.Height), nil
	case strings.HasSuffix(name, ".pptx"):
		return describeSlides(content)
	}
	return "", errors.New("was not expected")
}

func describeSlides(content []byte) (string, error) {
	all, err := parts(content)
	if err != nil {
		return "", fmt.Errorf("is no PowerPoint file: %w", err)
	}
	slides, charts := 0, 0
	for name, part := range all {
		if strings.HasPrefix(name, "ppt/slides/slide") {
			slides++
			if !bytes.Contains(part, []byte("<a:t>")) {
				return "", fmt.Errorf("has no text on %s", name)
			}
		}
		if strings.HasPrefix(name, "ppt/charts/chart") && strings.HasSuffix(name, ".xml") {
			charts++
		}
	}
	if slides == 0 {
		return "", errors.New("has no slide")
	}
	return fmt.Sprintf("%d slide, %d chart", slides, charts), nil
}
