package serve

import (
	"strconv"
	"time"
	"unicode/utf8"
)

// dropRate bounds how fast output that will be dropped is read, in bytes a
// second: a command that prints without end must not cost a whole CPU.
const dropRate = 50 << 20

// capture passes the first part of a stream on at once, holds the last part
// back in a ring, and counts what falls between.
type capture struct {
	send func(p []byte)
	head int64 // bytes still to pass on; negative: no bound
	tail int   // size of the ring

	ring    []byte
	next    int   // where the next byte goes once the ring is full
	dropped int64 // bytes that fell out of the ring
	began   time.Time
}

// newCapture splits limit into 70 % head and 30 % tail.
func newCapture(limit int64, send func([]byte)) *capture {
	if limit < 0 {
		return &capture{send: send, head: -1}
	}
	tail := limit * 3 / 10
	return &capture{send: send, head: limit - tail, tail: int(tail)}
}

func (c *capture) write(p []byte) {
	if c.head < 0 {
		c.send(p)
		return
	}
	if c.head > 0 {
		n := int(min(c.head, int64(len(p))))
		if n < len(p) || c.head == int64(n) {
			n = wholeRunes(p[:n]) // a character is not cut in half
			c.head = 0
		} else {
			c.head -= int64(n)
		}
		c.send(p[:n])
		p = p[n:]
	}
	c.hold(p)
}

// hold puts p into the ring.
func (c *capture) hold(p []byte) {
	if len(p) == 0 {
		return
	}
	if room := c.tail - len(c.ring); room > 0 {
		n := min(room, len(p))
		c.ring = append(c.ring, p[:n]...)
		p = p[n:]
	}
	if len(p) == 0 {
		return
	}
	if c.dropped == 0 {
		c.began = time.Now()
	}
	c.dropped += int64(len(p))
	if c.tail == 0 {
		c.pace()
		return
	}
	if len(p) > c.tail {
		p = p[len(p)-c.tail:]
		c.next = 0
	}
	for len(p) > 0 {
		n := copy(c.ring[c.next:], p)
		p = p[n:]
		c.next = (c.next + n) % c.tail
	}
	c.pace()
}

func (c *capture) pace() {
	due := time.Duration(float64(c.dropped) / dropRate * float64(time.Second))
	if ahead := due - time.Since(c.began); ahead > 10*time.Millisecond {
		t := time.NewTimer(min(ahead, 100*time.Millisecond))
		<-t.C
	}
}

// close sends what was held back and returns how many bytes were dropped.
func (c *capture) close() int64 {
	tail := append(c.ring[c.next:len(c.ring):len(c.ring)], c.ring[:c.next]...)
	if c.dropped > 0 {
		n := 0
		for n < min(utf8.UTFMax-1, len(tail)) && !utf8.RuneStart(tail[n]) {
			n++
		}
		tail = tail[n:]
		c.dropped += int64(n)
		c.send([]byte("\n... " + strconv.FormatInt(c.dropped, 10) + " bytes dropped ...\n"))
	}
	c.ring, c.next = nil, 0
	if len(tail) > 0 {
		c.send(tail)
	}
	return c.dropped
}

// wholeRunes is the length of p without a character that is cut at its end.
func wholeRunes(p []byte) int {
	for i := len(p) - 1; i >= 0 && i > len(p)-utf8.UTFMax; i-- {
		if utf8.RuneStart(p[i]) {
			if !utf8.FullRune(p[i:]) {
				return i
			}
			break
		}
	}
	return len(p)
}
