/*
 * Linked into static programs for glibc by `cargo xtask dist`.
 *
 * A static glibc reads files and asks DNS itself. For any other service in nsswitch.conf, it loads a shared library of the
 * machine, which was built for the machine's own glibc: another version than ours may crash. So this program never loads one.
 */
extern int __nss_configure_lookup(const char *database, const char *services);

__attribute__((constructor)) static void look_up_without_shared_libraries(void)
{
    /* It fails only without memory for a list of two words. The program then reads nsswitch.conf. */
    (void)__nss_configure_lookup("hosts", "files dns");
    (void)__nss_configure_lookup("passwd", "files");
    (void)__nss_configure_lookup("group", "files");
    (void)__nss_configure_lookup("services", "files");
}
