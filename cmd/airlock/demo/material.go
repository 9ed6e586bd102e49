package demo

import (
	"embed"
	"fmt"
)

//go:embed script.md prompt.md samples/annual-report.docx samples/orders-2025.xlsx
var material embed.FS

// Names of the sample documents and of what the turn makes of them. The report keeps its name.
const (
	Report   = "annual-report.docx"
	Workbook = "orders-2025.xlsx"
	PDF      = "annual-report.pdf"
	Chart    = "revenue-chart.png"
	Slide    = "summary-slide.pptx"
)

// Sample returns one of the two documents.
func Sample(name string) ([]byte, error) {
	b, err := material.ReadFile("samples/" + name)
	if err != nil {
		return nil, fmt.Errorf("sample: %w", err)
	}
	return b, nil
}

// Script is the message that makes the scripted model do the work.
func Script() (string, error) { return text("script.md") }

// Prompt is the message for a real model: the same task in words.
func Prompt() (string, error) { return text("prompt.md") }

func text(name string) (string, error) {
	b, err := material.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("demo material: %w", err)
	}
	return string(b), nil
}
