// Package demo is the material of `airlock demo`: two sample documents, the script that the scripted model plays on
// them, the prompt for a real model, and the check of what comes back.
//
// It runs nothing and knows no server. The samples are made by samples/make.py inside an office root file system; a
// test keeps them within their bounds.
//
// Files: material.go (what is embedded), compare.go (two versions of a Word document, part by part and paragraph by
// paragraph), check.go (the four results).
package demo
