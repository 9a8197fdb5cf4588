/* The node file: mapping it, and its time. */
#include "state.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Maps an existing node, or gives NULL; *bad_format shows that there is a file of another format. */
struct node *node_map(const char *path, int *bad_format)
{
    *bad_format = 0;
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0)
        return NULL;
    struct stat info;
    struct node *node = MAP_FAILED;
    if (fstat(file, &info) == 0 && (size_t)info.st_size >= sizeof(struct node))
        node = mmap(NULL, (size_t)info.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (node == MAP_FAILED) {
        *bad_format = 1;
        return NULL;
    }
    if (node->magic != NODE_MAGIC || node->version != NODE_VERSION || node->size != (uint64_t)info.st_size) {
        munmap(node, (size_t)info.st_size);
        *bad_format = 1;
        return NULL;
    }
    return node;
}

void node_unmap(struct node *node)
{
    munmap(node, node->size);
}

int64_t node_now(const struct node *node)
{
    if (node->is_virtual)
        return atomic_load_explicit(&((struct node *)node)->virtual_ns, memory_order_acquire);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec - node->epoch_ns;
}
