# zstd as a library, and a program on it, in the directory that has its sources and pack.c.
OPTIMIZE ?= -O1
SOURCES := $(sort $(wildcard lib/common/*.c lib/compress/*.c lib/decompress/*.c))
OBJECTS := $(SOURCES:.c=.o)
CFLAGS := $(OPTIMIZE) -DZSTD_DISABLE_ASM -DZSTD_LEGACY_SUPPORT=0 -MD
pack: pack.o libzstd.a
	$(CC) -o $@ $^ -lpthread
pack.o: CFLAGS += -Ilib
libzstd.a: $(OBJECTS)
	rm -f $@ && ar rcsD $@ $^
-include $(OBJECTS:.o=.d)
