package claude

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// MaxFrame is the largest frame a FrameReader accepts, in bytes.
const MaxFrame = 64 << 20

// ErrFrameTooLarge is the error of a peer that sent one frame beyond MaxFrame.
var ErrFrameTooLarge = errors.New("sse frame too large")

// Frame is one server-sent event. Event is "" when the peer named none.
type Frame struct {
	Event string
	Data  []byte
}

// FrameReader splits a byte stream into frames as the SSE standard says: lines
// end with LF, CR LF or CR, data lines are joined with LF, comments and unknown
// fields are dropped, and a frame without a closing blank line is not a frame.
type FrameReader struct {
	r     *bufio.Reader
	begun bool
	cr    bool // the last line ended with CR: an LF that follows belongs to it
}

// NewFrameReader reads from r, which stays the caller's to close.
func NewFrameReader(r io.Reader) *FrameReader {
	return &FrameReader{r: bufio.NewReaderSize(r, 32<<10)}
}

// Next returns the next frame that has data, or io.EOF.
func (f *FrameReader) Next() (Frame, error) {
	var fr Frame
	var data bytes.Buffer
	seen := false
	for {
		line, err := f.line()
		if err != nil {
			return Frame{}, err
		}
		if len(line) == 0 {
			if seen {
				fr.Data = data.Bytes()
				return fr, nil
			}
			fr = Frame{}
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "event":
			fr.Event = string(value)
		case "data":
			if seen {
				data.WriteByte('\n')
			}
			seen = true
			data.Write(value)
			if data.Len() > MaxFrame {
				return Frame{}, ErrFrameTooLarge
			}
		}
	}
}

// line returns the next line without its end. The last, unfinished line of a
// stream is never a frame's end, so it is reported as io.EOF.
func (f *FrameReader) line() ([]byte, error) {
	var line []byte
	for {
		c, err := f.r.ReadByte()
		if err != nil {
			return nil, err
		}
		after := f.cr
		f.cr = c == '\r'
		if after && c == '\n' {
			continue
		}
		if c == '\n' || c == '\r' {
			return f.trimBOM(line), nil
		}
		line = append(line, c)
		if len(line) > MaxFrame {
			return nil, ErrFrameTooLarge
		}
	}
}

func (f *FrameReader) trimBOM(line []byte) []byte {
	if f.begun {
		return line
	}
	f.begun = true
	return bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
}
